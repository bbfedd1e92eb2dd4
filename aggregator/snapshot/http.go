package snapshot

import (
	"encoding/json"
	"log/slog"
	"net/http"
)

// Handler answers GET with a snapshot.
func (s *Source) Handler(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "method not allowed: use GET", http.StatusMethodNotAllowed)
			return
		}
		body, err := json.Marshal(s.Take())
		if err != nil {
			log.Error("encode the snapshot", "error", err)
			http.Error(w, "the snapshot cannot be encoded", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // fails only if the caller has left
	})
}
