// Command inferencecache asks a running aggregator what it knows, and computes block hashes.
package main

import (
	"os"

	"github.com/inferencecache/inferencecache/cmd/inferencecache/command"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(command.New)) }
