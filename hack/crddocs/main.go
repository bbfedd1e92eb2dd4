// Command crddocs writes the reference page of the API types in a folder to standard output, as Markdown.
//
// usage: crddocs FOLDER
package main

import (
	"bytes"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crddocs FOLDER")
		os.Exit(2)
	}
	var page bytes.Buffer
	err := write(&page, os.Args[1])
	if err == nil {
		_, err = os.Stdout.Write(page.Bytes())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crddocs:", err)
		os.Exit(1)
	}
}
