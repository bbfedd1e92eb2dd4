// Package discover finds the engines among the pods of one node, and follows pods as they come, restart,
// change and go. What a container starts is read by package engineargs; what it makes of it is told to
// the agent as engines to follow. Problems go where the owner of a pod looks: as Events of the pod.
package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/discover/engineargs"
)

// Config says where to look.
type Config struct {
	Client kubernetes.Interface
	// Node is the node whose pods are looked at.
	Node string
	// Namespace is the only one looked at; all if empty.
	Namespace string
	Log       *slog.Logger
	Now       func() time.Time
}

// Discovery finds engines. Run it once.
type Discovery struct {
	cfg      Config
	api      *apiState
	recorder events.EventRecorder // set by Run

	mu      sync.Mutex
	pods    map[string][]known // engine containers by namespace/name of their pod
	settled bool
}

// known is an engine container and what has been done about it.
type known struct {
	found
	namespace, pod string
	followed       string   // process and target that are followed; empty if none
	reported       []string // problems that an Event was made of
}

// New checks the configuration.
func New(cfg Config) (*Discovery, error) {
	if cfg.Node == "" {
		return nil, errors.New("node-name: missing; it names the node whose pods are looked at, from spec.nodeName by the downward API")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Discovery{cfg: cfg, pods: map[string][]known{}, api: &apiState{log: cfg.Log, now: cfg.Now}}, nil
}

// Settled says whether the pods that were there at first have been looked at.
func (d *Discovery) Settled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

// listed is a key that is no pod's: it is in the queue behind those of a list.
const listed = ""

// Run watches pods until ctx ends. It calls follow for each engine that is found and each that is another
// process or has another address, and unfollow when one is gone. An API server that is away is no error:
// what was found stays.
func (d *Discovery) Run(ctx context.Context, follow func(config.Engine) error, unfollow func(id string)) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{d.cfg.Log.Handler()}))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: d.cfg.Client.EventsV1()})
	defer broadcaster.Shutdown()
	d.recorder = broadcaster.NewRecorder(scheme.Scheme, "inferencecache-agent")
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("prepare the recording of Events: %w", err)
	}
	store := &podStore{queue: workqueue.NewTyped[string](), pods: map[string]*corev1.Pod{}}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() {
		d.watch(klog.NewContext(ctx, logr.Discard()), store) // what goes wrong is noted by its calls
		store.queue.ShutDown()
	})
	for {
		key, over := store.queue.Get()
		switch {
		case over:
			return nil
		case ctx.Err() != nil: // the rest is dropped: the agent ends
		case key == listed:
			d.settle()
		default:
			d.look(store.get(key), key, follow, unfollow)
		}
		store.queue.Done(key)
	}
}

func (d *Discovery) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.settled {
		d.cfg.Log.Info("the pods of the node are known", "node", d.cfg.Node, "with_engines", len(d.pods))
	}
	d.settled = true
}

// look compares a pod, nil if it is gone, with what is followed of it, and does what is left to do.
func (d *Discovery) look(pod *corev1.Pod, key string, follow func(config.Engine) error, unfollow func(string)) {
	var next []known
	if pod != nil {
		for _, f := range enginesOf(pod) {
			next = append(next, known{found: f, namespace: pod.Namespace, pod: pod.Name})
		}
	}
	for _, old := range d.pods[key] { // only this goroutine writes
		i := indexOf(next, old.id)
		if i >= 0 {
			next[i].followed, next[i].reported = old.followed, old.reported
		}
		if old.followed != "" && (i < 0 || !next[i].followable()) {
			unfollow(old.id)
			if i >= 0 {
				next[i].followed = ""
			}
		}
	}
	for i := range next {
		next[i].take(follow)
		d.report(pod, &next[i])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(next) == 0 {
		delete(d.pods, key)
		return
	}
	d.pods[key] = next
}

func indexOf(list []known, id string) int {
	for i := range list {
		if list[i].id == id {
			return i
		}
	}
	return -1
}

// take follows the engine if it is not what is followed already.
func (k *known) take(follow func(config.Engine) error) {
	if !k.followable() {
		return
	}
	want := fmt.Sprintf("%s %+v", k.process, k.engine)
	if k.followed == want {
		return
	}
	k.followed = ""
	if err := follow(k.engine); err != nil {
		k.problems = append(k.problems, engineargs.Problem{
			Reason: engineargs.EngineUnsupported, Text: "the engine is not followed: " + err.Error(),
		})
		return
	}
	k.followed = want
}
