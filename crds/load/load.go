// Package load reads API objects from YAML files as strictly as an API server takes them, so that a folder
// of policies works without a cluster and means the same in one: fields that do not exist, wrong types,
// broken rules and objects that contradict each other are errors; defaults are filled in.
package load

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// Bounds of what is read.
const (
	MaxFiles      = 4096
	MaxFileBytes  = 8 << 20
	MaxTotalBytes = 64 << 20
)

// Objects are the objects of a folder, in the order of file names and of documents within a file. They are
// as an API server would store them, without status.
type Objects struct {
	CacheBackends   []*v1alpha1.CacheBackend
	CachePolicies   []*v1alpha1.CachePolicy
	CacheTenants    []*v1alpha1.CacheTenant
	CacheIndices    []*v1alpha1.CacheIndex
	PromptTemplates []*v1alpha1.PromptTemplate
	PDTopologies    []*v1alpha1.PDTopology
}

// Problem is one thing wrong with a file.
type Problem struct {
	File     string
	Document int    // counts the documents of the file that are not empty, from 1; 0 is the file as a whole
	Line     int    // of the file, from 1; 0 is unknown
	Object   string // kind and name, as "CachePolicy team-a/default"; "" while unknown
	Err      error
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Document > 0 {
		fmt.Fprintf(&b, " (document %d)", p.Document)
	}
	if p.Object != "" {
		b.WriteString(": " + p.Object)
	}
	b.WriteString(": " + p.Err.Error())
	return b.String()
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Problems is everything wrong with what was read, one problem a line.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems one by one.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

// Folder reads the files of a folder whose names end in .yaml, .yml or .json and do not start with a dot;
// it does not go into folders below, but follows links to files, as a mounted ConfigMap has them.
//
// Where something is wrong the error is Problems, and the objects are those that are sound and contradict
// none before them. A caller that must not act on half a folder looks at the error first.
func Folder(dir string) (Objects, error) {
	objects, err := FS(os.DirFS(dir))
	var problems Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			p.File = filepath.Join(dir, p.File)
		}
		return objects, problems
	}
	if err != nil {
		return objects, fmt.Errorf("read folder %s: %w", dir, err)
	}
	return objects, nil
}

// FS is Folder for the root of a file system.
func FS(fsys fs.FS) (Objects, error) {
	entries, err := fs.ReadDir(fsys, ".") // sorted
	if err != nil {
		return Objects{}, fmt.Errorf("list files: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !isObjectFile(e.Name()) })
	if len(entries) > MaxFiles {
		return Objects{}, fmt.Errorf("%d files, of which at most %d are read", len(entries), MaxFiles)
	}
	var l loader
	total := 0
	for _, entry := range entries {
		name := entry.Name()
		data, err := readFile(fsys, name)
		if err != nil {
			l.report(&Problem{File: name, Err: err})
			continue
		}
		if total += len(data); total > MaxTotalBytes {
			return Objects{}, fmt.Errorf("files of more than %d bytes together", MaxTotalBytes)
		}
		l.file(name, data)
	}
	return l.finish()
}

// File reads one file's content. name appears in problems.
func File(name string, data []byte) (Objects, error) {
	var l loader
	l.file(name, data)
	return l.finish()
}

func isObjectFile(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readFile returns nothing for a folder.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name) // follows links
	if err != nil {
		return nil, fmt.Errorf("find file: %w", err)
	}
	if info.IsDir() {
		return nil, nil
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	switch {
	case len(data) > MaxFileBytes:
		return nil, fmt.Errorf("has more than %d bytes", MaxFileBytes)
	case len(data) == 0: // taken as it is, it would put its objects out of force for a moment
		return nil, errors.New("is empty, as a file is while it is written; to state nothing, delete it or leave a comment in it")
	}
	return data, nil
}
