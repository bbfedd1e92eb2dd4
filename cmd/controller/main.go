// Command controller judges objects of group inferencecache.io and keeps their status.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newCommand)) }
