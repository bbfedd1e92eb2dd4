// Command chaos breaks engines, agents and aggregators under load, and compares what the aggregators know
// with what the engines hold once all is quiet.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/hack/command"
)

func main() { os.Exit(command.Run(newCommand())) }
