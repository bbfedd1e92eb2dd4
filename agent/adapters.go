package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of a list of models.
const (
	modelsTimeout = 5 * time.Second
	maxModelsPage = 1 << 20
	maxAdapters   = 4096
)

// adapters asks an engine which LoRA adapters are loaded. Where the engine's events carry numbers
// only (vLLM before 0.14.1), it learns the names of numbers from the order of the list: vLLM counts adapters
// from 1 as they are loaded and never gives a number twice. It learns only while nothing else is
// possible: when it has asked since before the engine's server listened, and what it sees is that adapters were
// added behind those that were there. A wrong name would be a wrong hint; a number without a name is only a miss.
type adapters struct {
	url    string
	every  time.Duration
	client *http.Client
	fixed  map[int64]string // names that were configured
	tell   func(map[int64]string)
	log    *slog.Logger

	mu      sync.Mutex
	names   []string // that are loaded, in the order of the engine
	asked   bool     // names is an answer of the present process
	down    bool     // nothing listened when it was asked last, so that the next answer is a new process's first
	certain bool     // numbers can be told from the order
	next    int64    // number of the adapter to be loaded next, if certain
	learned map[int64]string
}

func newAdapters(url string, every time.Duration, fixed map[int64]string, tell func(map[int64]string), log *slog.Logger) *adapters {
	return &adapters{
		url: strings.TrimSuffix(url, "/") + "/v1/models", every: every, client: &http.Client{Timeout: modelsTimeout},
		fixed: fixed, tell: tell, log: log,
	}
}

// loaded returns the adapters that are loaded, in the order of the engine; nil if it has not said.
func (a *adapters) loaded() []string {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

// Run asks until ctx ends. A failure is no error: the engine may be starting, or keep its list to itself.
func (a *adapters) Run(ctx context.Context) error {
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	failing := false
	for {
		names, err := a.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !failing {
				a.log.Info("the engine does not list its adapters", "error", err)
			}
			if errors.Is(err, syscall.ECONNREFUSED) {
				a.refused()
			}
		default:
			a.take(names)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ask returns the names of the adapters that are loaded.
func (a *adapters) ask(ctx context.Context) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get models: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get models: %s answered %s", a.url, resp.Status)
	}
	var page struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"` // of the base model there is none
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModelsPage)).Decode(&page); err != nil {
		return nil, fmt.Errorf("read models: %w", err)
	}
	names := []string{}
	for _, m := range page.Data {
		if m.Parent != nil && *m.Parent != "" && m.ID != "" && len(names) < maxAdapters {
			names = append(names, m.ID)
		}
	}
	return names, nil
}

// refused says that nothing listens: the process that answers next is another one.
func (a *adapters) refused() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = true
}

// restarted says that the engine is another process. Nothing is certain of it but what was configured.
func (a *adapters) restarted() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.down {
		a.names, a.asked, a.certain = nil, false, false
		a.learn(nil)
	}
}

// take compares an answer with the one before.
func (a *adapters) take(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.names
	switch {
	case a.down: // the first answer of a process that was waited for
		a.certain, a.next, before = a.beginsAsConfigured(names), 1, nil
		a.learn(nil)
	case !a.asked:
		a.certain = false
	}
	a.names, a.asked, a.down = names, true, false
	if !a.certain {
		return
	}
	kept := 0
	for kept < len(before) && kept < len(names) && before[kept] == names[kept] {
		kept++
	}
	switch {
	case kept == len(before): // nothing but additions
		learned := maps.Clone(a.learned)
		for _, name := range names[kept:] {
			if learned == nil {
				learned = map[int64]string{}
			}
			learned[a.next] = name
			a.next++
		}
		a.learn(learned)
	case len(names) < len(before) && subsequence(names, before): // nothing but removals
	default:
		a.certain = false
		a.log.Info("adapters were removed and loaded at once, numbers of further ones are not known", "loaded", names)
	}
}

// beginsAsConfigured says whether the list begins with the adapters that were configured, in their order.
func (a *adapters) beginsAsConfigured(names []string) bool {
	for id, name := range a.fixed {
		if id < 1 || id > int64(len(names)) || names[id-1] != name {
			return false
		}
	}
	return true
}

// subsequence says whether some has the elements of all but for some that are left out.
func subsequence(some, all []string) bool {
	for _, name := range all {
		if len(some) > 0 && some[0] == name {
			some = some[1:]
		}
	}
	return len(some) == 0
}

// learn tells the tables what was learned, over what was configured. The caller holds the lock.
func (a *adapters) learn(learned map[int64]string) {
	if maps.Equal(a.learned, learned) {
		return
	}
	a.learned = learned
	all := maps.Clone(a.fixed)
	if all == nil {
		all = map[int64]string{}
	}
	maps.Copy(all, learned)
	a.tell(all)
}
