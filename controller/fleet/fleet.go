// Package fleet asks every aggregator for its snapshot, and makes one view of the answers.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
)

const (
	// DefaultTimeout is how long one aggregator may take to answer.
	DefaultTimeout = 5 * time.Second
	// maxAggregators bounds the addresses that are asked in one poll; those beyond it are left out, and said so.
	maxAggregators = 64
	// atOnce bounds the questions in flight.
	atOnce = 8
)

// Config says whom to ask, and how.
type Config struct {
	// URLs are those of /snapshot. A host that has several addresses stands for several aggregators.
	URLs []string
	// TokenFile holds the bearer token. It is read for each poll; without the file none is sent.
	TokenFile string
	// Timeout bounds each answer; 0 means DefaultTimeout.
	Timeout time.Duration
	// LookupHost returns the addresses of a host; nil asks the system.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	Log        *slog.Logger
}

// Check says whether the URLs can be asked.
func (c *Config) Check() error {
	if len(c.URLs) == 0 {
		return errors.New("there must be at least one URL of an aggregator")
	}
	for _, text := range c.URLs {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			var problem *url.Error
			if errors.As(err, &problem) {
				err = problem.Err // without the text, which may hold a password
			}
			return fmt.Errorf("read the URL of an aggregator: %w", err)
		case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
			return fmt.Errorf("URL %q of an aggregator must be as http://HOST:PORT/snapshot", text)
		case u.User != nil:
			return errors.New("the URL of an aggregator must not hold a user or a password: the token comes from a file")
		}
	}
	return nil
}

// Poller asks aggregators. Poll must not be called from two goroutines at once.
type Poller struct {
	config  Config
	metrics *Metrics
	failing map[string]bool // by address: those that did not answer last time
}

// NewPoller returns a Poller that counts in metrics.
func NewPoller(config Config, metrics *Metrics) *Poller {
	if config.Timeout <= 0 {
		config.Timeout = DefaultTimeout
	}
	if config.LookupHost == nil {
		config.LookupHost = net.DefaultResolver.LookupHost
	}
	return &Poller{config: config, metrics: metrics, failing: map[string]bool{}}
}

// Answer is what one aggregator said, or why it did not.
type Answer struct {
	// Address is host:port that was asked, or a URL whose host has no address.
	Address  string
	Snapshot *snapshot.Snapshot // nil if Err is not
	Err      error
}

// Poll asks every aggregator and returns their answers, sorted by address. It takes about twice the
// timeout at most for every 8 aggregators.
func (p *Poller) Poll(ctx context.Context) []Answer {
	targets, answers := p.targets(ctx)
	token, tokenErr := readToken(p.config.TokenFile)
	asked := make([]Answer, len(targets))
	work := errgroup.Group{}
	work.SetLimit(atOnce)
	for i, t := range targets {
		work.Go(func() error {
			asked[i] = p.ask(ctx, t, token, tokenErr)
			return nil
		})
	}
	_ = work.Wait() // an error is part of its answer
	answers = append(answers, asked...)
	slices.SortFunc(answers, func(a, b Answer) int { return strings.Compare(a.Address, b.Address) })
	if ctx.Err() == nil { // what was cancelled says nothing of the aggregators
		p.note(answers)
	}
	return answers
}

func (p *Poller) ask(ctx context.Context, t target, token string, tokenErr error) Answer {
	if tokenErr != nil {
		return Answer{Address: t.address, Err: tokenErr}
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	s, err := fetch(ctx, t, token)
	return Answer{Address: t.address, Snapshot: s, Err: err}
}

// target is an aggregator to ask: url's host is for the request, address for the connection.
type target struct{ url, address string }

// targets returns an entry for each address of each URL, and an answer for each URL that has none.
func (p *Poller) targets(ctx context.Context) (targets []target, failed []Answer) {
	known := map[string]bool{}
	for _, text := range p.config.URLs {
		addresses, err := p.resolve(ctx, text)
		if err != nil {
			failed = append(failed, Answer{Address: text, Err: err})
			continue
		}
		for _, address := range addresses {
			if !known[address] {
				known[address] = true
				targets = append(targets, target{url: text, address: address})
			}
		}
	}
	if left := len(targets) - maxAggregators; left > 0 {
		p.config.Log.Warn("there are more aggregators than are asked", "asked", maxAggregators, "left_out", left)
		targets = targets[:maxAggregators]
	}
	return targets, failed
}

// resolve returns host:port for each address that a URL stands for. Where the host has addresses of both
// families the IPv4 ones are used, so that no aggregator is asked twice.
func (p *Poller) resolve(ctx context.Context, text string) ([]string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, unusable{err}
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	hosts, err := p.config.LookupHost(ctx, u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("look up the aggregators: %w", err)
	}
	var four, six []string
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
			six = append(six, net.JoinHostPort(host, port))
		} else {
			four = append(four, net.JoinHostPort(host, port))
		}
	}
	if len(four) > 0 {
		return four, nil
	}
	return six, nil
}

// note counts the answers, and logs where an aggregator has begun or ceased to answer.
func (p *Poller) note(answers []Answer) {
	failing := make(map[string]bool, len(answers))
	for _, a := range answers {
		switch {
		case a.Err != nil && !p.failing[a.Address]:
			p.config.Log.Warn("an aggregator does not answer", "aggregator", a.Address, "error", a.Err)
		case a.Err == nil && p.failing[a.Address]:
			p.config.Log.Info("an aggregator answers again", "aggregator", a.Address)
		}
		failing[a.Address] = a.Err != nil
	}
	p.failing = failing
	p.metrics.note(answers)
}
