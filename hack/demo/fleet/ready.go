package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// poll calls attempt until it succeeds. It gives up, with the last error, after startLimit or when ctx
// ends.
func poll(ctx context.Context, attempt func() error) error {
	deadline := time.Now().Add(startLimit)
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", startLimit, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// awaitReady waits until /readyz at host:port answers 200.
func awaitReady(ctx context.Context, address string) error {
	client := &http.Client{Timeout: time.Second}
	return poll(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
		}
		return nil
	})
}

// freeAddresses returns n different loopback addresses whose ports were free a moment ago.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all at the end, so that no port is found twice
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
