package trace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/hack/demo/trace"
)

const twoRequests = `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}

{"timestamp": 3000, "input_length": 1024, "output_length": 0, "hash_ids": [7, 9], "type": "text"}
`

func TestRead_ReturnsTheRequestsInOrder(t *testing.T) {
	want := []trace.Request{{0, 1000, 5, []uint64{7, 8}}, {3000, 1024, 0, []uint64{7, 9}}}
	for limit, n := range map[int]int{0: 2, 1: 1, 2: 2, 5: 2} {
		got, err := trace.Read(strings.NewReader(twoRequests), limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[:n], got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

func TestRead_NamesBadLinesByNumber(t *testing.T) {
	const good = `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}`
	tests := []struct{ name, text, want string }{
		{"no JSON", good + "\nhello\n", "line 2: invalid character"},
		{"a field of the wrong type", `{"timestamp":"now"}`, "line 1: json: cannot unmarshal string"},
		{"no timestamp", "\n" + `{"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 2: timestamp is missing"},
		{"no input length", `{"timestamp":0,"output_length":1,"hash_ids":[1]}`, "line 1: input_length is missing"},
		{"no output length", `{"timestamp":0,"input_length":1,"hash_ids":[1]}`, "line 1: output_length is missing"},
		{"a negative timestamp", `{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 1: timestamp is -1"},
		{"an empty prompt", `{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`, "line 1: input_length is 0"},
		{"a huge answer", `{"timestamp":0,"input_length":1,"output_length":1048577,"hash_ids":[1]}`, "line 1: output_length is 1048577"},
		{"too few ids", `{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]}`, "line 1: hash_ids has 1 ids: an input_length of 513 takes 2"},
		{"no ids", `{"timestamp":0,"input_length":512,"output_length":1}`, "line 1: hash_ids has 0 ids: an input_length of 512 takes 1"},
		{"too many ids", `{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[1,2]}`, "line 1: hash_ids has 2 ids"},
		{"two bad lines", "1\n" + good + "\n{}", "line 3: timestamp is missing"},
		{"a line without end", good + "\n" + strings.Repeat("1", 1<<21), "line 2: bufio.Scanner: token too long"},
		{"nothing", "\n\n", "the trace has no requests"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := trace.Read(strings.NewReader(tt.text), 0)
			if got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, error %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestRead_ListsABoundedNumberOfBadLines(t *testing.T) {
	_, err := trace.Read(strings.NewReader(strings.Repeat("x\n", 1000)), 0)
	if err == nil || strings.Count(err.Error(), "\n") != 9 {
		t.Fatalf("error is %v", err)
	}
}

func TestSessions_GiveEqualIDsEqualTokens(t *testing.T) {
	requests, err := trace.Read(strings.NewReader(twoRequests), 0)
	if err != nil {
		t.Fatal(err)
	}
	var prompts [2][]uint32
	for i, s := range trace.Sessions(requests) {
		for _, span := range s[0].Input {
			prompts[i] = span.Append(prompts[i])
		}
	}
	if len(prompts[0]) != 1000 || len(prompts[1]) != 1024 {
		t.Fatalf("prompts have %d and %d tokens, want 1000 and 1024", len(prompts[0]), len(prompts[1]))
	}
	if !slices.Equal(prompts[0][:512], prompts[1][:512]) {
		t.Error("the shared first block differs")
	}
	if slices.Equal(prompts[0][512:1000], prompts[1][512:1000]) {
		t.Error("blocks of different ids are equal")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(twoRequests)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		requests, err := trace.Read(strings.NewReader(text), 10)
		if (err == nil) != (len(requests) > 0) {
			t.Fatalf("%d requests, error %v", len(requests), err)
		}
		for _, r := range requests {
			if len(r.HashIDs) != (r.InputLength-1)/trace.BlockTokens+1 {
				t.Fatalf("accepted %+v", r)
			}
		}
	})
}
