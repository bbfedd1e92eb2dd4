package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// object is an API object as JSON has it.
type object map[string]any

// api speaks as much of the protocol of an API server as a watch of three kinds needs. What it does not
// show, such as watches that begin with a list, is left to the tests against a real one.
type api struct {
	server *httptest.Server

	mu       sync.Mutex
	refuse   map[string]int // status by resource; "" is all
	version  int
	objects  map[string]map[string]object // by resource, then namespace/name
	watchers map[string][]chan object     // by resource
}

func newAPI(t *testing.T) *api {
	a := &api{refuse: map[string]int{}, version: 1, objects: map[string]map[string]object{}, watchers: map[string][]chan object{}}
	a.server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.cut()
		a.server.Close()
	})
	return a
}

func (a *api) config() *rest.Config { return &rest.Config{Host: a.server.URL, QPS: -1} }

// ServeHTTP answers lists and watches.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	a.mu.Lock()
	status := max(a.refuse[resource], a.refuse[""])
	a.mu.Unlock()
	query := r.URL.Query()
	switch {
	case status != 0:
		fail(w, status)
	case query.Get("sendInitialEvents") == "true":
		fail(w, http.StatusBadRequest)
	case query.Get("watch") == "true":
		a.watch(w, r, resource)
	default:
		a.list(w, resource)
	}
}

func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": http.StatusText(status)})
}

func (a *api) list(w http.ResponseWriter, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object{
		"apiVersion": "inferencecache.io/v1alpha1", "kind": "List",
		"metadata": object{"resourceVersion": strconv.Itoa(a.version)},
		"items":    slices.Collect(maps.Values(a.objects[resource])),
	})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan object, 64)
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	a.mu.Lock()
	for _, o := range a.objects[resource] {
		if v, _ := strconv.Atoi(o["metadata"].(object)["resourceVersion"].(string)); v > since {
			events <- object{"type": "MODIFIED", "object": o}
		}
	}
	a.watchers[resource] = append(a.watchers[resource], events)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, open := <-events:
			if !open || json.NewEncoder(w).Encode(e) != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// put stores an object of a generation.
func (a *api) put(kind, resource, namespace, name string, generation int64, spec object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o := object{
		"apiVersion": "inferencecache.io/v1alpha1", "kind": kind, "spec": spec,
		"metadata": object{"namespace": namespace, "name": name, "generation": generation, "resourceVersion": fmt.Sprint(a.version)},
	}
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]object{}
	}
	a.objects[resource][namespace+"/"+name] = o
	a.tell(resource, object{"type": "MODIFIED", "object": o})
}

func (a *api) remove(resource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o := a.objects[resource][key]
	delete(a.objects[resource], key)
	a.tell(resource, object{"type": "DELETED", "object": o})
}

// tell sends an event. The caller holds the lock.
func (a *api) tell(resource string, event object) {
	for _, w := range a.watchers[resource] {
		w <- event
	}
}

// answer makes the server answer a resource, "" for all, with a status; 0 is as usual.
func (a *api) answer(resource string, status int) {
	a.mu.Lock()
	a.refuse[resource] = status
	a.mu.Unlock()
	if status != 0 {
		a.cut()
	}
}

// cut ends every watch.
func (a *api) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for resource, all := range a.watchers {
		for _, w := range all {
			close(w)
		}
		delete(a.watchers, resource)
	}
}
