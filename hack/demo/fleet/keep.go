package fleet

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// WriteCommands writes the commands that query what is running, and the one that ends it.
func (f *Fleet) WriteCommands(w io.Writer) error {
	cli := filepath.Join(f.config.BinDir, "inferencecache")
	server := " --server " + f.aggregatorGRPC
	scope := " --model " + Scope.Model
	pids := make([]string, len(f.processes))
	for i, p := range f.processes {
		pids[i] = strconv.Itoa(p.PID())
	}
	_, err := fmt.Fprintf(w, `
Everything is left running. Ask it:
  %s
  %s
  %s
  %s
  %s
Its engines file and logs are in %s. End it:
  kill %s
`,
		cli+" state"+server+scope,
		cli+" dump"+server+" --replica "+f.Engines[0].Name()+" | head",
		`curl -s http://`+f.engineHTTP[0]+`/v1/completions -d '{"model":"`+Scope.Model+`","max_tokens":1,"prompt":['$(seq -s, 1 64)']}'`,
		cli+" lookup"+server+scope+" --tokens $(seq -s, 1 64)",
		"curl -s http://"+f.aggregatorHTTP+"/metrics http://"+f.agentHTTP+"/metrics | grep ^inferencecache",
		f.config.Dir, strings.Join(pids, " "))
	if err != nil {
		return fmt.Errorf("print commands: %w", err)
	}
	return nil
}
