package push

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/inferencecache/inferencecache/aggregator/policy"
)

// MaxBodyBytes bounds a document.
const MaxBodyBytes = 1 << 20

// maxErrorRunes bounds the text of an error, which may quote the document.
const maxErrorRunes = 1024

// Handler puts the document of each POST or PUT in force and answers 204; one that cannot be used
// changes nothing and is answered with 400 and the reason.
func Handler(feed *policy.Feed, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			w.Header().Set("Allow", "POST, PUT")
			http.Error(w, "method not allowed: use POST or PUT", http.StatusMethodNotAllowed)
			return
		}
		set, err := read(w, r)
		if err != nil {
			feed.Fail(err)
			log.Warn("policy document refused", "error", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if feed.Replace(set) {
			log.Info("policies pushed", "policies", len(set.Policies), "quotas", len(set.Quotas))
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func read(w http.ResponseWriter, r *http.Request) (policy.Set, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return policy.Set{}, fmt.Errorf("request body too large: at most %d bytes are taken", MaxBodyBytes)
	}
	if err != nil {
		return policy.Set{}, fmt.Errorf("read the policy document: %w", err)
	}
	set, err := Decode(body)
	if err != nil {
		return policy.Set{}, fmt.Errorf("%.*s", maxErrorRunes, err.Error())
	}
	return set, nil
}
