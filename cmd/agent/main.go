// Command agent is the node agent: it follows the KV-cache events of engines and keeps aggregators
// told of what the engines hold.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newCommand)) }
