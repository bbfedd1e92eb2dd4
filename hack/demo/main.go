// Command demo runs engines, the agent and the aggregator on this machine, replays one workload twice,
// once routing in turns and once by prefix, and compares the two.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/hack/command"
)

func main() { os.Exit(command.Run(newCommand())) }
