package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// Config is what a Writer works with.
type Config struct {
	// Client reads from a cache and writes to the API server. Pods are read as metadata.
	Client client.Client
	// Informers tell of changes.
	Informers cache.Informers
	// Poller asks the aggregators.
	Poller *fleet.Poller
	// Interval is the time between polls, more than 0.
	Interval time.Duration
	// Events takes what is said of objects.
	Events  events.EventRecorder
	Metrics *Metrics
	Log     *slog.Logger
}

// Writer keeps statuses up to date while it runs.
type Writer struct {
	Config
	changed  chan struct{} // holds one note that an object has changed
	answered *bool         // whether an aggregator answered the last poll; nil before the first
}

// NewWriter returns a Writer. It is run by Start.
func NewWriter(config Config) *Writer {
	return &Writer{Config: config, changed: make(chan struct{}, 1)}
}

const (
	// afterChange is how long notes of changes are collected.
	afterChange = 500 * time.Millisecond
	// unsettled is the first pause while aggregators do not yet apply what they should; it doubles up to the
	// interval.
	unsettled = time.Second
)

// Start polls at once, then in intervals, and soon after a change, until ctx ends.
func (w *Writer) Start(ctx context.Context) error {
	if err := w.watch(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	pause := unsettled
	for {
		settled, err := w.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			w.Log.Error("write statuses; the next pass tries again", "error", err)
		}
		next := w.Interval
		if settled {
			pause = unsettled
		} else {
			next, pause = min(pause, w.Interval), min(2*pause, w.Interval)
		}
		if w.sleep(ctx, next) {
			pause = unsettled
		}
	}
}

// watch has changes of objects noted. It waits for what there is, as long as the API server cannot be
// reached or does not know the kinds. Informers end with the process.
func (w *Writer) watch(ctx context.Context) error {
	for _, kind := range []client.Object{&v1alpha1.CacheBackend{}, &v1alpha1.CachePolicy{}, &v1alpha1.CacheTenant{}} {
		informer, err := w.Informers.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { w.note() },
				DeleteFunc: func(any) { w.note() },
				UpdateFunc: func(before, after any) {
					if generation(before) != generation(after) { // else only a status or a label
						w.note()
					}
				},
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow %T objects: %w", kind, err)
		}
	}
	return nil
}

func generation(object any) int64 {
	if o, ok := object.(metav1.Object); ok {
		return o.GetGeneration()
	}
	return 0
}

// note says that an object has come, gone or been changed by its author, so that its status need not wait
// for the next poll. It never blocks.
func (w *Writer) note() {
	select {
	case w.changed <- struct{}{}:
	default: // there is a note already
	}
}

// sleep returns when the time has passed, ctx has ended, or, with true, when an object has changed.
func (w *Writer) sleep(ctx context.Context, pause time.Duration) (changed bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	case <-w.changed:
	}
	timer.Reset(afterChange)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	select { // what came meanwhile is part of this change
	case <-w.changed:
	default:
	}
	return true
}

// NeedLeaderElection says that only one process writes statuses.
func (w *Writer) NeedLeaderElection() bool { return true }

// pass polls once and writes what differs. settled says that another pass soon would find nothing else.
func (w *Writer) pass(ctx context.Context) (settled bool, err error) {
	view := fleet.Merge(w.Poller.Poll(ctx))
	if ctx.Err() != nil {
		return false, nil
	}
	index, errIndex := w.writeIndex(ctx, view)
	if index != nil {
		w.sayWhoAnswers(index, view)
	}
	settled, errPolicies := w.writePolicies(ctx, view)
	return settled, errors.Join(errIndex, errPolicies, w.writeTenants(ctx, view), w.writeBackends(ctx, view))
}

// writeIndex returns the CacheIndex as it was read, nil if it could not be.
func (w *Writer) writeIndex(ctx context.Context, view *fleet.View) (*v1alpha1.CacheIndex, error) {
	index := &v1alpha1.CacheIndex{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CacheIndexName}}
	switch err := w.Client.Get(ctx, client.ObjectKeyFromObject(index), index); {
	case apierrors.IsNotFound(err):
		if err := w.Client.Create(ctx, index); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create CacheIndex %s: %w", index.Name, err)
		}
		if index.UID == "" {
			return nil, nil //nolint:nilnil // it is on its way into the cache, and the next pass finds it
		}
	case err != nil:
		return nil, fmt.Errorf("read CacheIndex %s: %w", index.Name, err)
	}
	if !view.Answered() {
		return index, nil
	}
	after := index.DeepCopy()
	var left int
	after.Status, left = indexStatus(index.Status, view, metav1.Now())
	if left > 0 {
		w.Log.Warn("the CacheIndex has not room for all replicas and tenants", "left_out", left)
	}
	_, err := w.patch(ctx, "CacheIndex", index, after, equal(index.Status, after.Status))
	return index, err
}

// sayWhoAnswers makes an Event where the last aggregator falls silent, and where the first answers again.
func (w *Writer) sayWhoAnswers(index *v1alpha1.CacheIndex, view *fleet.View) {
	now, before := view.Answered(), w.answered
	w.answered = &now
	switch {
	case !now && (before == nil || *before):
		w.say(index, event{corev1.EventTypeWarning, "AggregatorsUnreachable", "no aggregator answers; statuses stay as they are: " + firstError(view)})
	case now && before != nil && !*before:
		w.say(index, event{corev1.EventTypeNormal, "AggregatorsAnswering", fmt.Sprintf("%d aggregators answer", len(view.Aggregators))})
	}
}

func firstError(view *fleet.View) string {
	if len(view.Failed) == 0 {
		return "none has an address"
	}
	return fmt.Sprintf("%s: %v", view.Failed[0].Address, view.Failed[0].Err)
}

func (w *Writer) writeTenants(ctx context.Context, view *fleet.View) error {
	var list v1alpha1.CacheTenantList
	if err := w.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list CacheTenants: %w", err)
	}
	owners := quotaOwners(list.Items)
	var errs []error
	for i := range list.Items {
		t := &list.Items[i]
		after := t.DeepCopy()
		after.Status = tenantStatus(t, owners[t.Spec.TenantID], view)
		errs = append(errs, w.patchWithEvents(ctx, "CacheTenant", t, after, equal(t.Status, after.Status), t.Status.Conditions, after.Status.Conditions))
	}
	return errors.Join(errs...)
}

func (w *Writer) writePolicies(ctx context.Context, view *fleet.View) (settled bool, err error) {
	var list v1alpha1.CachePolicyList
	if err := w.Client.List(ctx, &list); err != nil {
		return true, fmt.Errorf("list CachePolicies: %w", err)
	}
	first := firstPolicies(list.Items)
	settled = true
	var errs []error
	for i := range list.Items {
		p := &list.Items[i]
		after := p.DeepCopy()
		after.Status = policyStatus(p, first[p.Namespace], view)
		settled = settled && !onTheWay(after)
		errs = append(errs, w.patchWithEvents(ctx, "CachePolicy", p, after, equal(p.Status, after.Status), p.Status.Conditions, after.Status.Conditions))
	}
	return settled, errors.Join(errs...)
}

// onTheWay says whether aggregators have yet to take up a policy.
func onTheWay(p *v1alpha1.CachePolicy) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.CachePolicyInForce {
			return c.Reason == v1alpha1.ReasonPartlyInForce
		}
	}
	return false
}

func (w *Writer) writeBackends(ctx context.Context, view *fleet.View) error {
	if !view.Answered() {
		return nil
	}
	var list v1alpha1.CacheBackendList
	if err := w.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list CacheBackends: %w", err)
	}
	pods, err := w.pods(ctx)
	if err != nil {
		return err
	}
	shares := sharesOf(list.Items, view.Replicas, pods)
	var errs []error
	for i := range list.Items {
		b := &list.Items[i]
		after := b.DeepCopy()
		after.Status.IndexParticipation = participation(b.Status.IndexParticipation, shares[keyOf(b)])
		_, err := w.patch(ctx, "CacheBackend", b, after, equal(b.Status.IndexParticipation, after.Status.IndexParticipation))
		errs = append(errs, err)
	}
	w.Metrics.t2.note(shares)
	return errors.Join(errs...)
}

// pods returns what finds a Pod by name among those that can belong to a CacheBackend.
func (w *Writer) pods(ctx context.Context) (func(namespace, name string) metav1.Object, error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := w.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	byName := make(map[client.ObjectKey]*metav1.PartialObjectMetadata, len(list.Items))
	for i := range list.Items {
		byName[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return func(namespace, name string) metav1.Object {
		if pod := byName[client.ObjectKey{Namespace: namespace, Name: name}]; pod != nil {
			return pod
		}
		return nil
	}, nil
}

// patchWithEvents patches a status and, once it is written, says what changed.
func (w *Writer) patchWithEvents(ctx context.Context, kind string, before, after client.Object, unchanged bool, was, is []metav1.Condition) error {
	written, err := w.patch(ctx, kind, before, after, unchanged)
	if !written {
		return err
	}
	for _, e := range transitions(was, is) {
		w.say(after, e)
	}
	return nil
}

// patch writes a status that differs. An object that has changed since it was read, or is gone, is left to
// the next pass, which the change has caused already.
func (w *Writer) patch(ctx context.Context, kind string, before, after client.Object, unchanged bool) (written bool, err error) {
	if unchanged {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err = w.Client.Status().Patch(ctx, after, patch)
	switch {
	case err == nil:
		w.Metrics.writes.WithLabelValues(kind, "ok").Inc()
		return true, nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		w.Metrics.writes.WithLabelValues(kind, "stale").Inc()
		w.note()
		return false, nil
	default:
		w.Metrics.writes.WithLabelValues(kind, "error").Inc()
		return false, fmt.Errorf("patch the status of %s %s: %w", kind, client.ObjectKeyFromObject(before), err)
	}
}

// say makes an Event on an object.
func (w *Writer) say(on runtime.Object, e event) {
	w.Events.Eventf(on, nil, e.kind, e.reason, "Report", "%s", e.message)
}
