package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/inferencecache/inferencecache/hack/chaos/relay"
	"github.com/inferencecache/inferencecache/hack/demo/engine"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/process"
)

// form is how one engine differs from the others: the wire forms of some release, and what it keeps.
type form struct {
	flags []string
	// saltless engines do not say in their events which blocks are salted.
	saltless bool
	// nameless engines give adapters by number alone.
	nameless bool
	// small engines keep fewer messages for replay than may be lost.
	small bool
	// forgetful engines replay nothing.
	forgetful bool
	// lazy engines announce a reset only with their next event, as vLLM does.
	lazy bool
}

// smallBuffer is the number of messages that engines with a small replay buffer keep.
const smallBuffer = 8

// forms are those of releases from the newest to the oldest.
var forms = []form{
	{flags: []string{"--event-form=map", "--hash-form=int"}},
	{flags: []string{"--event-form=map", "--hash-form=bytes"}, small: true},
	{flags: []string{"--event-form=map", "--hash-form=int", "--eager-clear=false"}, lazy: true},
	{flags: []string{"--event-form=map", "--hash-form=bytes", "--replay-form=two-frame"}},
	{flags: []string{"--event-form=array", "--array-fields=12", "--replay-form=two-frame"}},
	{flags: []string{"--event-form=array", "--array-fields=10", "--hash-form=bytes", "--replay-form=two-frame"}, small: true},
	{flags: []string{"--event-form=array", "--array-fields=8", "--replay-form=two-frame", "--eager-clear=false"}, saltless: true, lazy: true},
	{flags: []string{"--event-form=array", "--array-fields=6"}, saltless: true, nameless: true, forgetful: true},
}

// adapters are the LoRA adapters of every engine.
var adapters = map[string]int{"sql": 1, "chat": 2}

// Adapters returns the names under which requests may ask for a model, the base model's included.
func Adapters() []string { return []string{"", "sql", "chat"} }

// Engine is one engine, behind relays.
type Engine struct {
	Name  string
	Agent int // that follows it
	form

	program
	events, replay []*relay.Relay // by rank
	http           *relay.Relay   // as the agent reads metrics
	client         atomic.Pointer[client]
}

// client talks to one process of an engine.
type client struct {
	address string
	*engine.Client
}

// Named returns the number of the engine with a name, or -1.
func (f *Fleet) Named(name string) int {
	return slices.IndexFunc(f.Engines, func(e *Engine) bool { return e.Name == name })
}

// Salts says whether the engine's events tell salted blocks from others.
func (e *Engine) Salts() bool { return !e.saltless }

// Forgets says whether faults may lose what the engine cannot replay.
func (e *Engine) Forgets() bool { return e.small || e.forgetful }

// Silent says whether what was lost, or is kept for the next event, shows only with that event.
func (e *Engine) Silent() bool { return e.lazy || e.forgetful }

func newEngine(number int, c Config) (*Engine, error) {
	e := &Engine{Name: fmt.Sprintf("engine-%d", number), Agent: number * Agents / Engines, form: forms[number%len(forms)]}
	var err error
	if e.events, err = relay.Range(Ranks); err != nil {
		return nil, err
	}
	if e.replay, err = relay.Range(Ranks); err != nil {
		return nil, err
	}
	if e.http, err = relay.Plain(); err != nil {
		return nil, err
	}
	buffer := 100_000 // everything
	if e.small {
		buffer = smallBuffer
	}
	e.program = program{name: e.Name, path: binary(c.BinDir, "fakeengine"), dir: c.Dir, ready: e.bound, args: append([]string{
		"--name", e.Name, "--model", Model, "--lora", "sql=1,chat=2", "--ranks", strconv.Itoa(Ranks),
		"--http-bind-address", "127.0.0.1:0", "--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0",
		"--blocks", strconv.Itoa(Blocks), "--block-size", strconv.Itoa(BlockTokens), "--time-scale", "0",
		"--buffer-steps", strconv.Itoa(buffer), "--log-level", "warn",
	}, e.flags...)}
	return e, nil
}

// bound takes the addresses that a process prints.
func (e *Engine) bound(p *process.Process) error {
	out, err := p.Output()
	if err != nil {
		return err
	}
	var at struct {
		HTTP   string   `json:"http"`
		Events []string `json:"events"`
		Replay []string `json:"replay"`
	}
	if err := json.Unmarshal(out, &at); err != nil {
		return fmt.Errorf("read the addresses that %s prints: %w", p.Name(), err)
	}
	if at.HTTP == "" || len(at.Events) != Ranks || len(at.Replay) != Ranks {
		return fmt.Errorf("%s prints %s, which is not the addresses of %d ranks", p.Name(), out, Ranks)
	}
	for r := range Ranks {
		e.events[r].Target(strings.TrimPrefix(at.Events[r], "tcp://"))
		e.replay[r].Target(strings.TrimPrefix(at.Replay[r], "tcp://"))
	}
	e.http.Target(at.HTTP)
	if old := e.client.Swap(&client{at.HTTP, engine.New(e.Name, at.HTTP, Model, clientConns)}); old != nil {
		old.Close()
	}
	return nil
}

func (e *Engine) unbind() {
	for r := range Ranks {
		e.events[r].Target("")
		e.replay[r].Target("")
	}
	e.http.Target("")
}

// clientConns is the number of idle connections kept to one engine.
const clientConns = 16

// Held returns what the engine truly holds.
func (e *Engine) Held(ctx context.Context) (inspect.Blocks, error) { return e.client.Load().Held(ctx) }

// Reset empties the prefix cache. It tries again while blocks are in use, until ctx ends.
func (e *Engine) Reset(ctx context.Context) error { return e.client.Load().Reset(ctx) }

// Request is one completion.
type Request struct {
	Prompt        []uint32
	Rank, Tokens  int
	Adapter, Salt string
}

// Answer is what came of it.
type Answer struct {
	Tokens []uint32
	Cached int // prompt tokens that the engine had in its cache
}

// Complete has the engine generate tokens.
func (e *Engine) Complete(ctx context.Context, r Request) (Answer, error) {
	model := r.Adapter
	if model == "" {
		model = Model
	}
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": r.Prompt, "max_tokens": r.Tokens, "cache_salt": r.Salt, "return_token_ids": true,
	})
	if err != nil {
		return Answer{}, fmt.Errorf("write request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.client.Load().address+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("X-data-parallel-rank", strconv.Itoa(r.Rank))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", e.Name, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("read answer of %s: %w", e.Name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("ask %s: %s: %s", e.Name, resp.Status, text)
	}
	return answerOf(text)
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 8 << 20

func answerOf(text []byte) (Answer, error) {
	var body struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"choices"`
		Usage struct {
			PromptTokensDetails struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return Answer{}, fmt.Errorf("decode answer: %w", err)
	}
	if len(body.Choices) != 1 {
		return Answer{}, fmt.Errorf("decode answer: %d choices, want one", len(body.Choices))
	}
	return Answer{body.Choices[0].TokenIDs, body.Usage.PromptTokensDetails.CachedTokens}, nil
}

// describe is the engine's entry in the agent's file.
func (e *Engine) describe() string {
	names := ""
	if e.nameless {
		var pairs []string
		for name, id := range adapters {
			pairs = append(pairs, fmt.Sprintf("%d: %s", id, name))
		}
		names = ", loraNames: {" + strings.Join(pairs, ", ") + "}"
	}
	replay := ""
	if !e.forgetful {
		replay = fmt.Sprintf(", replay: 'tcp://%s'", e.replay[0].Addr())
	}
	return fmt.Sprintf("  - {name: %s, model: %s, tenant: %s, hashScheme: %s, ranks: %d, events: 'tcp://%s', metrics: 'http://%s/metrics'%s%s}\n",
		e.Name, Model, Tenant, Scheme, Ranks, e.events[0].Addr(), e.http.Addr(), replay, names)
}
