// Command aggregator answers LookupRoute from what node agents report.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newCommand)) }
