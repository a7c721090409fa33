// Google's own fake of Pub/Sub, on a port of its choice, which is its first line of output.
//
// It obeys lines of standard input, each answered by "ok", and ends when that is closed:
//
//	advance 30s   its clock leaps, so that deadlines pass
//	lose 3        the next 3 acknowledgements are answered as done, and forgotten
//	refuse 3      the next 3 acknowledgements are answered by an error
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type acknowledgements struct{ lose, refuse atomic.Int64 }

// React answers in the server's place where it says so. The server calls it under a lock.
func (a *acknowledgements) React(_ interface{}) (bool, interface{}, error) {
	if a.lose.Load() > 0 {
		a.lose.Add(-1)
		return true, nil, nil
	}
	if a.refuse.Load() > 0 {
		a.refuse.Add(-1)
		return true, nil, status.Error(codes.Internal, "refused, as it was told")
	}
	return false, nil, nil
}

func main() {
	told := &acknowledgements{}
	server := pstest.NewServer(pstest.ServerReactorOption{FuncName: "Acknowledge", Reactor: told})
	fmt.Println(server.Addr)
	var ahead time.Duration
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var word, value string
		var number int64
		fmt.Sscan(lines.Text(), &word, &value)
		fmt.Sscan(value, &number)
		switch word {
		case "advance":
			leap, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			ahead += leap
			now := ahead
			server.SetTimeNowFunc(func() time.Time { return time.Now().Add(now) })
		case "lose":
			told.lose.Store(number)
		case "refuse":
			told.refuse.Store(number)
		default:
			panic("no such word: " + word)
		}
		fmt.Println("ok")
	}
}
