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

// adapters asks an engine which LoRA adapters are loaded. Where the engine's events carry numbers only (vLLM
// before 0.14.1), it learns the names of those that the engine was started with: vLLM numbers them from 1 in
// their order, and does not listen before all are loaded. Numbers of adapters that are loaded later cannot be known: one that
// fails to load uses up a number and leaves no trace in the list. A wrong name would be a wrong hint; a
// number without a name is only a miss.
type adapters struct {
	url    string
	every  time.Duration
	client *http.Client
	fixed  map[int64]string // names that were configured
	tell   func(map[int64]string)
	log    *slog.Logger

	mu      sync.Mutex
	names   []string // that are loaded, in the order of the engine
	down    bool     // nothing listened when it was asked last, so that the next answer is a new process's first
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

// restarted says that the engine is another process. Nothing is known of it but what was configured, and
// what it was seen to start with.
func (a *adapters) restarted() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.down {
		a.names = nil
		a.learn(nil)
	}
}

// take notes an answer. The first of a process that was waited for gives the numbers of its adapters.
func (a *adapters) take(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		var learned map[int64]string
		if a.beginsAsConfigured(names) {
			learned = map[int64]string{}
			for i, name := range names {
				learned[int64(i+1)] = name
			}
		}
		a.learn(learned)
	}
	a.names, a.down = names, false
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
