package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// retry is the wait before the API server is asked again, doubled from one try to the next up to Cap, and
// up to twice as long at random.
var retry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 5, Cap: 5 * time.Second}

// follower is a kind of objects that is followed, whatever its type.
type follower interface {
	run(ctx context.Context)
	trouble() error
	// changes counts what has changed the objects.
	changes() uint64
}

// kind keeps the objects of one kind, as a reflector tells. They are converted one by one, so that one that
// cannot be read does not keep the others away.
type kind[T any] struct {
	resource string
	client   dynamic.ResourceInterface
	check    func(*T) field.ErrorList
	notify   func() // called after every change, of objects or of trouble

	mu       sync.Mutex
	objects  map[string]object[T] // by namespace/name
	synced   bool
	revision uint64
	listErr  error // of the last try each; nil if it worked
	watchErr error
}

// object is the last sound state of an object, nil if there was none, and what is wrong with the newest.
type object[T any] struct {
	namespace, name string
	value           *T
	err             error
}

// run follows the objects until ctx ends.
func (k *kind[T]) run(ctx context.Context) {
	backoff := retry
	calls := &cache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(calls, k.client), &unstructured.Unstructured{}, k,
		cache.ReflectorOptions{Name: k.resource, Backoff: &backoff}).RunWithContext(ctx)
}

func (k *kind[T]) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := k.client.List(ctx, o)
	k.called(ctx, &k.listErr, err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (k *kind[T]) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := k.client.Watch(ctx, o)
	k.called(ctx, &k.watchErr, err)
	return w, err
}

// called notes how a call went. A watch that works needs no list.
func (k *kind[T]) called(ctx context.Context, into *error, err error) {
	if ctx.Err() != nil {
		return
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // without the address, of which parts are made up anew for each try
	}
	k.mu.Lock()
	*into = err
	if into == &k.watchErr && err == nil {
		k.listErr = nil
	}
	k.mu.Unlock()
	k.notify()
}

// trouble says why the objects are not followed now; nil if they are.
func (k *kind[T]) trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := cmp.Or(k.listErr, k.watchErr); err != nil {
		return fmt.Errorf("follow %s: %w", k.resource, err)
	}
	return nil
}

func (k *kind[T]) changes() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.revision
}

// state returns the objects by namespace, then name. synced is false until they have been read once.
func (k *kind[T]) state() (objects []object[T], synced bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects = slices.SortedFunc(maps.Values(k.objects), func(a, b object[T]) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return objects, k.synced
}

// changed calls change, which may alter the objects, and tells of it.
func (k *kind[T]) changed(change func()) {
	k.mu.Lock()
	change()
	k.revision++
	k.mu.Unlock()
	k.notify()
}

// Add implements cache.ReflectorStore.
func (k *kind[T]) Add(o any) error {
	u, err := asUnstructured(o)
	if err == nil {
		k.changed(func() { k.objects[keyOf(u)] = k.read(u) })
	}
	return err
}

// Update implements cache.ReflectorStore.
func (k *kind[T]) Update(o any) error { return k.Add(o) }

// Delete implements cache.ReflectorStore.
func (k *kind[T]) Delete(o any) error {
	u, err := asUnstructured(o)
	if err == nil {
		k.changed(func() { delete(k.objects, keyOf(u)) })
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (k *kind[T]) Replace(list []any, _ string) error {
	var errs []error
	k.changed(func() {
		all := make(map[string]object[T], len(list))
		for _, o := range list {
			u, err := asUnstructured(o)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all[keyOf(u)] = k.read(u)
		}
		k.objects, k.synced = all, true
	})
	return errors.Join(errs...)
}

// Resync implements cache.ReflectorStore.
func (k *kind[T]) Resync() error { return nil }

// read converts an object. If it cannot be used, its last sound state stands. The caller holds the lock.
func (k *kind[T]) read(u *unstructured.Unstructured) object[T] {
	o := object[T]{namespace: u.GetNamespace(), name: u.GetName(), value: k.objects[keyOf(u)].value}
	value := new(T)
	u.SetManagedFields(nil) // as large as the rest, and of no use here
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, value); err != nil {
		o.err = fmt.Errorf("%s %s: %w", u.GetKind(), keyOf(u), err)
	} else if err := k.check(value).ToAggregate(); err != nil {
		o.err = fmt.Errorf("%s %s: %w", u.GetKind(), keyOf(u), err)
	} else {
		o.value = value
	}
	return o
}

func asUnstructured(o any) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	return nil, fmt.Errorf("an object is a %T", o)
}

func keyOf(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + u.GetName() }
