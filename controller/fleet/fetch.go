package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
)

const (
	// maxBody bounds a snapshot: 100,000 replicas take half of it.
	maxBody = 64 << 20
	// maxToken is more than any token of a ServiceAccount.
	maxToken = 64 << 10
	// maxReason bounds what is quoted of an error page.
	maxReason = 200
)

// refused marks an answer of an aggregator that does not let the controller in.
type refused struct{ error }

// unusable marks an answer that is none: another status, or another document.
type unusable struct{ error }

func (e refused) Unwrap() error  { return e.error }
func (e unusable) Unwrap() error { return e.error }

// fetch reads the snapshot of one aggregator. Each call has a connection of its own: polls are far apart,
// and a connection kept open may lead to a process that is gone.
func fetch(ctx context.Context, t target, token string) (*snapshot.Snapshot, error) {
	dialer := net.Dialer{}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, t.address)
			},
		},
		// A token is for the aggregator alone, wherever that points to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, unusable{err}
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for a snapshot: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response)
	}
	return decode(response.Body)
}

func statusError(response *http.Response) error {
	reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason)) // as much as there is
	err := fmt.Errorf("the aggregator answers %s: %s", response.Status, strings.TrimSpace(string(reason)))
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return refused{fmt.Errorf("%w; its --allowed-controller-sa must name the controller's account, and the token must be of its --controller-audience", err)}
	default:
		return unusable{err}
	}
}

func decode(body io.Reader) (*snapshot.Snapshot, error) {
	limited := &io.LimitedReader{R: body, N: maxBody}
	var s snapshot.Snapshot
	if err := json.NewDecoder(limited).Decode(&s); err != nil {
		if limited.N <= 0 {
			return nil, unusable{fmt.Errorf("the snapshot has more than %d bytes", maxBody)}
		}
		return nil, unusable{fmt.Errorf("decode the snapshot: %w", err)}
	}
	return &s, nil
}

// readToken returns what the file holds, nothing if it does not exist: an aggregator may let everybody in.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open the token for aggregators: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the token for aggregators: %w", err)
	case len(data) > maxToken:
		return "", fmt.Errorf("the token for aggregators, %s, has more than %d bytes", name, maxToken)
	}
	return strings.TrimSpace(string(data)), nil
}
