// Package config reads the engines file: which engines an agent follows when no cluster tells it.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/inferencecache/inferencecache/kvevents"
)

// Defaults of an engine's optional fields.
const (
	DefaultTenant     = "default"
	DefaultHashScheme = "vllm"
)

// Bounds of an engines file.
const (
	maxEngines  = 1024
	maxNameLen  = 253 // as long as a Kubernetes name
	maxFileSize = 4 << 20
	maxAliases  = 7
	maxRank     = 1 << 16
)

// Tier2 says how an engine's offload tier is observed.
type Tier2 string

// Values of Tier2.
const (
	Tier2Observed Tier2 = "observed" // the engine's events name the medium
	Tier2Inferred Tier2 = "inferred" // a block evicted from the GPU is taken to be offloaded
	Tier2None     Tier2 = "none"     // events of an offload tier are ignored
)

// Engine is one engine process to follow.
type Engine struct {
	// ID names the engine in logs, metrics and the status; Name if empty. It is for engines that are found,
	// whose names may be those of others in another tenant.
	ID string `yaml:"-"`
	// Name is the replica id. Required, unique in the file.
	Name string `yaml:"name"`
	// Model is the served model name. Required.
	Model string `yaml:"model"`
	// ModelAliases are further names that the model is served under. What the engine holds is found under
	// each, and counts as often in the index.
	ModelAliases []string `yaml:"modelAliases"`
	// Tenant owns the engine; DefaultTenant if empty.
	Tenant string `yaml:"tenant"`
	// HashScheme is the hash domain; DefaultHashScheme if empty. It also chooses the names of the
	// engine's metrics: a scheme that begins with "sglang" is read as SGLang, any other as vLLM.
	HashScheme string `yaml:"hashScheme"`
	// Events is the address of rank 0's event publisher, tcp://host:port. Required.
	Events string `yaml:"events"`
	// Replay is the address of rank 0's replay socket; none if empty.
	Replay string `yaml:"replay"`
	// Topic narrows the subscription; everything if empty.
	Topic string `yaml:"topic"`
	// Ranks is the number of data-parallel ranks, at port, port+1, ...; 1 if 0.
	Ranks int `yaml:"ranks"`
	// FirstRank is the number of the first of them, where other replicas have those before.
	FirstRank int `yaml:"firstRank"`
	// Metrics is the URL of the engine's Prometheus page; no statistics if empty.
	Metrics string `yaml:"metrics"`
	// API is the URL of the engine's HTTP server, asked for the adapters that are loaded; nobody asks if
	// empty.
	API string `yaml:"api"`
	// LoRANames maps the engine's adapter ids to stable names, for engines whose events carry none.
	LoRANames map[int64]string `yaml:"loraNames"`
	// FullReports says that requests make the engine announce blocks again that it holds.
	FullReports bool `yaml:"fullReports"`
	// Tier2 is Tier2Observed if empty.
	Tier2 Tier2 `yaml:"tier2"`
}

type file struct {
	Engines []Engine `yaml:"engines"`
}

// Load reads and checks an engines file.
func Load(path string) ([]Engine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open engines file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read engines file: %w", err)
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("read engines file %s: larger than %d bytes", path, maxFileSize)
	}
	engines, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("engines file %s: %w", path, err)
	}
	return engines, nil
}

// Parse reads and checks the text of an engines file. Every problem is reported, not only the first.
func Parse(data []byte) ([]Engine, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var f file
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty: it must hold a list \"engines\"")
		}
		return nil, readable(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document: put all engines into one list")
	}
	switch n := len(f.Engines); {
	case n == 0:
		return nil, errors.New("engines: the list is empty")
	case n > maxEngines:
		return nil, fmt.Errorf("engines: %d given, at most %d are accepted", n, maxEngines)
	}
	return f.Engines, check(f.Engines)
}

// unknownField matches the YAML library's words for a key that no field takes.
var unknownField = regexp.MustCompile(`field (\S+) not found in type config\.(\w+)`)

// readable says what a YAML error means in the terms of the file.
func readable(err error) error {
	known := map[string]string{"file": keys(reflect.TypeFor[file]()), "Engine": keys(reflect.TypeFor[Engine]())}
	text := unknownField.ReplaceAllStringFunc(err.Error(), func(m string) string {
		parts := unknownField.FindStringSubmatch(m)
		return fmt.Sprintf("unknown key %q (accepted: %s)", parts[1], known[parts[2]])
	})
	return errors.New(strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " "))
}

// keys lists the keys of a struct in the file.
func keys(of reflect.Type) string {
	var names []string
	for field := range of.Fields() {
		if name := field.Tag.Get("yaml"); name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// check fills in defaults and returns every violation.
func check(engines []Engine) error {
	var errs []error
	names := make(map[string]int)
	for i := range engines {
		e := &engines[i]
		e.setDefaults()
		if first, dup := names[e.Name]; dup && e.Name != "" {
			errs = append(errs, fmt.Errorf("engines[%d].name: %q is the name of engines[%d] already", i, e.Name, first))
		} else {
			names[e.Name] = i
		}
		for _, err := range e.violations() {
			errs = append(errs, fmt.Errorf("engines[%d] (%s): %w", i, e.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Check fills in defaults and returns every violation.
func (e *Engine) Check() error {
	e.setDefaults()
	return errors.Join(e.violations()...)
}

func (e *Engine) setDefaults() {
	if e.Tenant == "" {
		e.Tenant = DefaultTenant
	}
	if e.HashScheme == "" {
		e.HashScheme = DefaultHashScheme
	}
	if e.Ranks == 0 {
		e.Ranks = 1
	}
	if e.Tier2 == "" {
		e.Tier2 = Tier2Observed
	}
}

func (e *Engine) violations() (errs []error) {
	for _, f := range []struct{ field, value string }{
		{"name", e.Name}, {"model", e.Model}, {"events", e.Events}, {"tenant", e.Tenant}, {"hashScheme", e.HashScheme},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s: missing", f.field))
		}
		if len(f.value) > maxNameLen {
			errs = append(errs, fmt.Errorf("%s: %d bytes long, at most %d are accepted", f.field, len(f.value), maxNameLen))
		}
	}
	if e.FirstRank < 0 || e.FirstRank > maxRank {
		errs = append(errs, fmt.Errorf("firstRank: %d is not between 0 and %d", e.FirstRank, maxRank))
	}
	errs = append(errs, e.aliasViolations()...)
	if e.Ranks < 1 || e.Ranks > kvevents.MaxRanks {
		errs = append(errs, fmt.Errorf("ranks: %d is not between 1 and %d", e.Ranks, kvevents.MaxRanks))
	} else if e.Events != "" {
		if _, err := kvevents.ParseEndpoints(e.Events, e.Replay, e.Topic, e.Ranks); err != nil {
			errs = append(errs, err)
		}
	}
	if all := []Tier2{Tier2Observed, Tier2Inferred, Tier2None}; !slices.Contains(all, e.Tier2) {
		errs = append(errs, fmt.Errorf("tier2: %q is not one of observed, inferred, none", e.Tier2))
	}
	for _, f := range []struct{ field, value string }{{"metrics", e.Metrics}, {"api", e.API}} {
		if u, err := url.Parse(f.value); f.value != "" &&
			(err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
			errs = append(errs, fmt.Errorf("%s: %q is not an http or https URL", f.field, f.value))
		}
	}
	for id, name := range e.LoRANames {
		if name == "" {
			errs = append(errs, fmt.Errorf("loraNames: adapter %d has an empty name", id))
		}
	}
	return errs
}

func (e *Engine) aliasViolations() (errs []error) {
	if n := len(e.ModelAliases); n > maxAliases {
		return []error{fmt.Errorf("modelAliases: %d given, at most %d are accepted", n, maxAliases)}
	}
	for i, name := range e.ModelAliases {
		switch {
		case name == "":
			errs = append(errs, errors.New("modelAliases: a name is empty"))
		case len(name) > maxNameLen:
			errs = append(errs, fmt.Errorf("modelAliases: a name is %d bytes long, at most %d are accepted", len(name), maxNameLen))
		case name == e.Model || slices.Contains(e.ModelAliases[:i], name):
			errs = append(errs, fmt.Errorf("modelAliases: %q is given twice", name))
		}
	}
	return errs
}
