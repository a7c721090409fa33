package main

import (
	"fmt"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	server := pstest.NewServerWithPort(0)
	fmt.Println(server.Addr)
	select {}
}
