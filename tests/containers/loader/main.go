// A compose file as the engine sees it: loaded by compose-go, the loader of `docker compose`, with the variables of an
// env file put in, all profiles on, and printed as JSON. A file that it refuses is told on standard error, with exit code 1.
//
//	loader docker-compose.yml .env
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if err := load(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(file, secrets string) error {
	options, err := cli.NewProjectOptions(
		[]string{file}, cli.WithEnvFiles(secrets), cli.WithDotEnv, cli.WithProfiles([]string{"*"}),
	)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	told, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(told)
	return err
}
