package tokenlist_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/cmd/inferencecache/tokenlist"
	"pgregory.net/rapid"
)

func TestParse_AcceptsTheFormsInUse(t *testing.T) {
	tests := []struct {
		name, text string
		want       []uint32
	}{
		{"a JSON array", "[1, 2,3]\n", []uint32{1, 2, 3}},
		{"an array over several lines", "[\n 1,\n 2\n]", []uint32{1, 2}},
		{"an empty array", " [ ] ", nil},
		{"commas", "1,2,3", []uint32{1, 2, 3}},
		{"spaces and tabs", "1 2\t3", []uint32{1, 2, 3}},
		{"one id a line", "1\r\n2\r\n", []uint32{1, 2}},
		{"a line ending in a comma", "1,2,\n3", []uint32{1, 2, 3}},
		{"nothing", "", nil},
		{"the largest id", "4294967295", []uint32{4294967295}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tokenlist.Read(strings.NewReader(tt.text))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Fatalf("Read(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestParse_NamesThePositionOfWhatIsWrong(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a word", "1,two", `line 1, column 3: id 2 is "two": want a whole number from 0 to 4294967295`},
		{"a word on a later line", "1\n2\n 3x", `line 3, column 2: id 3 is "3x": want a whole number from 0 to 4294967295`},
		{"an id of more than 32 bits", "4294967296", `line 1, column 1: id 1 is "4294967296": want a whole number from 0 to 4294967295`},
		{"a negative id", "[-1]", `line 1, column 2: id 1 is "-1": want a whole number from 0 to 4294967295`},
		{"a fraction", "[1.5]", `line 1, column 2: id 1 is "1.5": want a whole number from 0 to 4294967295`},
		{"a nested array", "[[1]]", `line 1, column 2: id 1 is "[1": want a whole number from 0 to 4294967295`},
		{"a bracket without its pair", "1 ]", `line 1, column 3: id 2 is "]": want a whole number from 0 to 4294967295`},
		{"two commas", "1,,2", "line 1, column 3: no id in front of the comma"},
		{"a leading comma", ",1", "line 1, column 1: no id in front of the comma"},
		{"a trailing comma", "1,2,\n", "line 2, column 1: no id after the comma"},
		{"a missing comma in an array", "[1 2]", "line 1, column 4: want a comma or ] after id 1"},
		{"an array cut short", "[1,2", "line 1, column 5: the array is not closed: want a comma or ]"},
		{"text after an array", "[1] 2", "line 1, column 5: text after the end of the array"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tokenlist.Parse([]byte(tt.text))
			if err == nil || err.Error() != tt.want {
				t.Fatalf("Parse(%q) = %v, error %v, want %s", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestParse_ReadsBackWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint32(), 1, 50).Draw(t, "ids")
		asJSON, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Trim(fmt.Sprint(ids), "[]")
		for _, text := range []string{string(asJSON), words, strings.ReplaceAll(words, " ", " , ")} {
			if got, err := tokenlist.Parse([]byte(text)); err != nil || !slices.Equal(got, ids) {
				t.Fatalf("Parse(%q) = %v, %v", text, got, err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"[1,2]", "1 2", "[", ",", "\x00", "[1]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := tokenlist.Parse([]byte(text))
		if err == nil && strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") != strings.HasSuffix(strings.TrimRight(text, " \t\r\n"), "]") {
			t.Fatalf("Parse(%q) = %v: an array cut short was accepted", text, got)
		}
	})
}
