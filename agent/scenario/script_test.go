package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

func TestMain(m *testing.M) {
	// A script waits far more than it works.
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			replay(t, file)
		})
	}
}

// TestFaultsNameScriptsThatExist keeps the list of known faults in step with the scripts.
func TestFaultsNameScriptsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Errorf("only %d scripts are named", len(names))
	}
	for _, name := range names {
		if name[1] == "kvevents" {
			continue
		}
		if _, err := os.Stat(filepath.Join("testdata", name[1]+".txt")); err != nil {
			t.Errorf("docs/faults.md: %v", err)
		}
	}
}

// block is a part of a script: commands and the output that they lead to.
type block struct {
	text  []string // as written
	first int      // number of the first line
	want  string
	asks  bool // has an output, be it empty
}

func replay(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var out strings.Builder
	for _, b := range parse(string(text)) {
		got := w.runBlock(file, b)
		if !*update && got != b.want {
			t.Fatalf("%s:%d: -want +got%s\n%s", file, b.first, cmp.Diff(b.want, got), w.unsettled())
		}
		out.WriteString(strings.Join(b.text, "\n") + "\n")
		if b.asks {
			out.WriteString("----\n" + got + "\n")
		}
	}
	if *update {
		rewritten := strings.TrimRight(out.String(), "\n") + "\n"
		if err := os.WriteFile(file, []byte(rewritten), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func parse(text string) (blocks []block) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	b := block{first: 1}
	for i := 0; i < len(lines); i++ {
		if lines[i] != "----" {
			b.text = append(b.text, lines[i])
			continue
		}
		b.asks = true
		for i++; i < len(lines) && lines[i] != ""; i++ {
			b.want += lines[i] + "\n"
		}
		blocks = append(blocks, b)
		b = block{first: i + 2}
	}
	if len(b.text) > 0 {
		blocks = append(blocks, b)
	}
	return blocks
}

// runBlock carries out the commands and answers the questions at their end.
func (w *world) runBlock(file string, b block) string {
	w.t.Helper()
	var questions []question
	for i, line := range b.text {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, line := range repeat(line) {
			ask, err := w.command(line)
			if err == nil && ask == nil && len(questions) > 0 {
				err = fmt.Errorf("a command may not follow a question in one block")
			}
			if err != nil {
				w.t.Fatalf("%s:%d: %s: %v", file, b.first+i, line, err)
			}
			if ask != nil {
				questions = append(questions, ask)
			}
		}
	}
	if b.asks != (len(questions) > 0) {
		w.t.Fatalf("%s:%d: questions and ---- go together", file, b.first)
	}
	if !b.asks {
		return ""
	}
	return w.answer(questions, b.want)
}

var braces = regexp.MustCompile(`\{(\d+)\.\.(\d+)\}`)

// repeat writes a line with {a..b} once for each number. Several in one line count together.
func repeat(line string) (lines []string) {
	m := braces.FindStringSubmatch(line)
	if m == nil {
		return []string{line}
	}
	from, _ := strconv.Atoi(m[1])
	to, _ := strconv.Atoi(m[2])
	for n := from; n <= to; n++ {
		lines = append(lines, braces.ReplaceAllString(line, strconv.Itoa(n)))
	}
	return lines
}
