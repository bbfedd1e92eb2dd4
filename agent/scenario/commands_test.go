package scenario

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// question asks what is so now. It is asked again until the answer is the wanted one.
type question func() (string, error)

// command carries out one line. A question is returned instead.
func (w *world) command(line string) (question, error) {
	words := strings.Fields(line)
	verb, words := words[0], words[1:]
	if declare, ok := map[string]func([]string) error{
		"engine": w.declareEngine, "aggregator": w.declareAggregator, "agent": w.declareAgent,
	}[verb]; ok {
		if w.running {
			return nil, errors.New("declarations come first")
		}
		return nil, declare(words)
	}
	if err := w.begin(); err != nil {
		return nil, err
	}
	if ask, ok := map[string]func([]string) (question, error){
		"index": w.askIndex, "ages": w.askAges, "lookup": w.askLookup, "counters": w.askCounters, "asked": w.askAsked,
		"ready": w.askReady,
	}[verb]; ok {
		return ask(words)
	}
	act, ok := map[string]func([]string) error{
		"publish": w.publish, "again": w.again, "raw": w.raw, "cut": w.cut, "kill": w.kill, "open": w.open, "set": w.set,
		"start": w.start, "stop": w.stop, "break": w.breakLink, "freeze": w.freeze, "thaw": w.thaw,
		"clock": w.clock, "forget": w.forget,
	}[verb]
	switch {
	case !ok:
		return nil, errors.New("no such command; doc.go lists them")
	case len(words) == 0:
		return nil, errors.New("want a target")
	default:
		return nil, act(words)
	}
}

func (w *world) declareAgent(words []string) error {
	w.agent.declared = words
	return nil
}

func (w *world) publish(words []string) (err error) {
	_, p, err := w.target(words[0])
	if err != nil {
		return err
	}
	var h how
	words = words[1:]
	for ; len(words) > 0; words = words[1:] {
		key, value, _ := strings.Cut(words[0], "=")
		switch key {
		case "seq":
			h.seq, err = strconv.ParseUint(value, 10, 64)
			h.hasSeq = true
		case "lost":
			h.lost = true
		case "burnt":
			h.burnt = true
		case "payload":
			h.payload, err = hex.DecodeString(value)
		default:
			key = ""
		}
		if err != nil {
			return err
		}
		if key == "" {
			break
		}
	}
	var events []event
	if len(words) > 0 {
		if events, err = parseEvents(strings.Join(words, " ")); err != nil {
			return err
		}
	}
	if !h.lost && !h.burnt {
		if err := w.awaitAgent(p, 0); err != nil {
			return err
		}
	}
	w.loop.do(func() { err = p.publish(h, events) })
	return err
}

func (w *world) again(words []string) error {
	_, p, err := w.target(words[0])
	if err != nil || len(words) != 2 {
		return errors.Join(err, errors.New("want a target and a number"))
	}
	seq, err := strconv.ParseUint(words[1], 10, 64)
	if err == nil {
		w.loop.do(func() { err = p.again(seq) })
	}
	return err
}

func (w *world) raw(words []string) error {
	_, p, err := w.target(words[0])
	if err != nil {
		return err
	}
	var frames [][]byte
	for _, word := range words[1:] {
		frame, err := hex.DecodeString(strings.TrimPrefix(word, "-"))
		if err != nil {
			return err
		}
		frames = append(frames, frame)
	}
	w.loop.do(func() { err = p.send(frames...) })
	return err
}

// cut and kill wait until the agent has read what was sent: what is on its way when a connection
// breaks may arrive or not.
func (w *world) cut(words []string) error {
	_, p, err := w.target(words[0])
	if err == nil {
		err = w.await("the agent to read what was sent", func() bool { return w.unread(w.metrics()) == "" })
	}
	if err == nil {
		w.loop.do(func() { p.close(w.loop) })
	}
	return err
}

func (w *world) kill(words []string) error {
	_, p, err := w.target(words[0])
	if err == nil && !slices.Contains(words, "unseen") {
		err = w.cut(words)
	}
	if err == nil {
		w.loop.do(p.restart)
	}
	return err
}

func (w *world) open(words []string) error {
	_, p, err := w.target(words[0])
	if err != nil {
		return err
	}
	requests := 2
	w.loop.do(func() {
		if p.replaced {
			requests++ // the first one shows that the process is another
		}
		p.replaced = false
		err = p.open(w.loop, patience)
	})
	return errors.Join(err, w.awaitAgent(p, requests))
}

func (w *world) set(words []string) error {
	e, p, err := w.target(words[0])
	for _, word := range words[1:] {
		if err == nil {
			w.loop.do(func() { err = e.set(p, word) })
		}
	}
	if err != nil || e.page == nil || !w.followed(e) {
		return err
	}
	// The second read from here on begins after the first has been acted on.
	before := e.page.reads()
	return w.await("the agent to read the metrics of "+e.cfg.Name, func() bool { return e.page.reads() >= before+2 })
}

func (w *world) start(words []string) error {
	if words[0] == "agent" {
		return w.startAgent(words[1:])
	}
	a, err := w.aggregator(words[0])
	if err == nil {
		err = w.startAggregator(a)
	}
	return err
}

func (w *world) stop(words []string) error {
	if words[0] == "agent" {
		return w.stopAgent()
	}
	a, err := w.aggregator(words[0])
	if err == nil {
		err = a.stop()
	}
	return err
}

func (w *world) link(words []string, act func(*relay)) error {
	a, err := w.aggregator(words[0])
	if err == nil {
		act(a.relay)
	}
	return err
}

func (w *world) breakLink(words []string) error { return w.link(words, (*relay).cut) }
func (w *world) freeze(words []string) error    { return w.link(words, (*relay).freeze) }
func (w *world) thaw(words []string) error      { return w.link(words, (*relay).thaw) }

func (w *world) clock(words []string) error {
	if len(words) == 1 {
		return jump(&w.offset, words[0])
	}
	a, err := w.aggregator(words[1])
	if err != nil {
		return err
	}
	return jump(&a.clock, words[0])
}

// forget removes one block from an index behind the agent's back.
func (w *world) forget(words []string) error {
	if len(words) != 3 {
		return errors.New("want an aggregator, a target and a block")
	}
	a, err := w.aggregator(words[0])
	if err != nil {
		return err
	}
	e, p, err := w.target(words[1])
	if err != nil {
		return err
	}
	for block, name := range w.names(p) {
		if name != words[2] || block.adapter != "" {
			continue
		}
		key := fingerprint.Key(block.print)
		ack, err := pb.NewInferenceCacheClient(a.conn).PublishEvent(context.Background(), &pb.CacheEvent{
			Type: pb.CacheEvent_PREFIX_EVICTED, ReplicaId: e.cfg.Name, ModelId: e.cfg.Model, TenantId: e.cfg.Tenant, PrefixHash: key[:],
		})
		if err == nil && !ack.Accepted {
			err = fmt.Errorf("refused: %s", ack.ReasonCode)
		}
		return err
	}
	return fmt.Errorf("no block %s", words[2])
}

func (w *world) names(p *publisher) (names map[listed]string) {
	w.loop.do(func() { names = p.names() })
	return names
}
