package engineargs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// command is a command that starts an engine: its arguments behind the program.
type command struct {
	kind  Kind
	words []string
}

// finding is what a search came upon.
type finding struct {
	engines []command
	files   map[string]string // text that a script wrote into files, by path
	fault   string            // why a script could not be read
	likely  Kind              // the engine that such a script names
}

// maxNested bounds shells within shells.
const maxNested = 4

// search looks for an engine in a command, through wrappers and shells.
func search(argv []string, vars *variables, depth int) finding {
	if script, params, ok := shellScript(argv); ok && depth < maxNested {
		return searchScript(script, params, vars, depth+1)
	}
	if c, ok := engineIn(argv); ok {
		return finding{engines: []command{c}}
	}
	for _, word := range argv[:min(3, len(argv))] {
		if strings.HasSuffix(word, ".sh") || strings.HasSuffix(word, ".py") {
			return finding{fault: fmt.Sprintf("what starts the engine is in the file %q, inside the container; say it by annotations", shorten(word))}
		}
	}
	return finding{}
}

// modules are the Python modules that are engines. Those of a command line take the word serve.
var modules = map[string]struct {
	kind  Kind
	serve bool
}{
	"vllm.entrypoints.openai.api_server": {kind: VLLM},
	"vllm.entrypoints.cli.main":          {kind: VLLM, serve: true},
	"vllm":                               {kind: VLLM, serve: true},
	"sglang.launch_server":               {kind: SGLang},
	"sglang.srt.entrypoints.http_server": {kind: SGLang},
	"sglang":                             {kind: SGLang, serve: true},
	"vllm/entrypoints/openai/api_server": {kind: VLLM},
	"sglang/launch_server":               {kind: SGLang},
	"sglang/srt/entrypoints/http_server": {kind: SGLang},
	"vllm/entrypoints/cli/main":          {kind: VLLM, serve: true},
	"sglang/cli/main":                    {kind: SGLang, serve: true},
	"sglang.cli.main":                    {kind: SGLang, serve: true},
}

// notLaunchers are commands whose arguments may name an engine without starting it.
var notLaunchers = []string{"echo", "printf", "grep", "which", "command", "pip", "pip3", "kill", "pkill", "test", "[", "tee", "cat"}

// engineIn finds the engine in one command, behind whatever wraps it: exec, env, numactl, nsys.
func engineIn(argv []string) (command, bool) {
	if len(argv) == 0 || slices.Contains(notLaunchers, path.Base(argv[0])) {
		return command{}, false
	}
	for i, word := range argv {
		rest := argv[i+1:]
		program := path.Base(word)
		if program == string(VLLM) || program == string(SGLang) {
			if len(rest) > 0 && rest[0] == "serve" {
				return command{Kind(program), rest[1:]}, true
			}
			continue
		}
		name := ""
		switch {
		case word == "-m" && len(rest) > 0:
			name, rest = rest[0], rest[1:]
		case strings.HasSuffix(word, ".py"):
			name = lastFolders(strings.TrimSuffix(word, ".py"))
		}
		if m, ok := modules[name]; ok {
			if !m.serve {
				return command{m.kind, rest}, true
			}
			if len(rest) > 0 && rest[0] == "serve" {
				return command{m.kind, rest[1:]}, true
			}
		}
	}
	return command{}, false
}

// lastFolders returns a path from the folder of an engine on.
func lastFolders(file string) string {
	for _, folder := range []string{"vllm/", "sglang/"} {
		if i := strings.LastIndex(file, folder); i >= 0 {
			return file[i:]
		}
	}
	return ""
}

// shells are programs that take a script with -c.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"}

// shellScript returns the script of a command like sh -c SCRIPT, and its parameters from $0 on.
func shellScript(argv []string) (script string, params []string, ok bool) {
	argv = unwrap(argv)
	if len(argv) == 0 || !slices.Contains(shells, path.Base(argv[0])) {
		return "", nil, false
	}
	given := false
	for i := 1; i < len(argv); i++ {
		word := argv[i]
		switch {
		case strings.HasPrefix(word, "--"): // --login, --norc
		case len(word) > 1 && (word[0] == '-' || word[0] == '+'):
			given = given || word[0] == '-' && strings.Contains(word, "c")
			if strings.HasSuffix(word, "o") { // -o pipefail, -euo pipefail
				i++
			}
		case i == 1 && word == "sh": // busybox sh
		case given:
			return word, argv[i+1:], true
		default:
			return "", nil, false // a file
		}
	}
	return "", nil, false
}

// wrappers are programs that run their arguments, by how many words of their own they may take.
var wrappers = map[string]bool{"exec": true, "tini": true, "dumb-init": true, "nohup": true, "env": true, "time": true, "setsid": true}

// unwrap drops wrappers in front of a shell.
func unwrap(argv []string) []string {
	for len(argv) > 0 && wrappers[path.Base(argv[0])] {
		argv = argv[1:]
		for len(argv) > 0 && (strings.HasPrefix(argv[0], "-") || isAssignment(argv[0])) {
			argv = argv[1:]
		}
	}
	return argv
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsAny(name, "-/ ")
}
