package tokenize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
)

const (
	tokenizerFile = "tokenizer.json"
	// maxFolderDepth bounds how deep models are looked for, which also ends loops of links.
	maxFolderDepth = 8
	maxFolders     = 10_000
)

// modelFiles are the files that a model is made of. A change of one reloads the model.
var modelFiles = []string{
	tokenizerFile, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
	"additional_chat_templates/tool_use.jinja", engineFile,
}

// folder is a folder that holds a model, or that looks like one.
type folder struct {
	id        string
	path      string
	signature string
	refused   error // why it is not a model, without a look into its files
}

// reload brings the models in line with the files below Dir. Models that stay the same are kept, and requests
// that use a model that goes end before it is freed.
func (r *Registry) reload(ctx context.Context) error {
	aliases, err := readAliases(r.config.Aliases)
	if err != nil {
		return err
	}
	folders, err := findModels(r.config.Dir, r.config.MaxModels)
	if err != nil {
		return err
	}
	old := r.models.Load()
	next := &snapshot{models: map[string]*model{}, aliases: aliases}
	var fresh []folder
	for _, f := range folders {
		m, loaded := old.models[f.id]
		switch refused := r.refused[f.id] == f.signature; {
		case loaded && (refused || m.signature == f.signature):
			next.models[f.id] = m
		case !refused:
			fresh = append(fresh, f)
		}
	}
	r.load(ctx, fresh, next, old)
	if ctx.Err() != nil {
		for id, m := range next.models {
			if old.models[id] != m {
				m.close()
			}
		}
		return ctx.Err()
	}
	r.warnAliases(next, old)
	r.models.Store(next)
	for id, m := range old.models {
		if next.models[id] != m {
			r.config.Log.Info("model gone or replaced", "model", id)
			m.close()
		}
	}
	return nil
}

// load loads folders in parallel into next. One that fails is named and left out; if it was loaded before its
// files changed, the loaded one stays.
func (r *Registry) load(ctx context.Context, folders []folder, next, old *snapshot) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(r.config.Concurrency)
	for _, f := range folders {
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			started := time.Now()
			m, err := loadModel(f, r.config)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.refused[f.id] = f.signature
				log := r.config.Log.With("model", f.id, "path", f.path, "err", err)
				if m, ok := old.models[f.id]; ok {
					next.models[f.id] = m
					log.Error("model not reloaded: the one loaded before stays in use")
				} else {
					log.Error("model refused")
				}
				return nil
			}
			delete(r.refused, f.id)
			next.models[f.id] = m
			r.logLoaded(m, time.Since(started))
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
}

func (r *Registry) logLoaded(m *model, took time.Duration) {
	log := r.config.Log.With("model", m.id)
	log.Info("model loaded", "vocabulary", m.encoder.vocabSize(), "took", took.Round(time.Millisecond))
	if why := m.encoder.slowBecause(); why != "" {
		log.Warn("model has no fast core: its prompts take about 100 times longer", "why", why)
	}
	if m.builtAnew {
		log.Warn("engines with transformers 5 may make other ids of some spaces: save the tokenizer again with the engine's version (save_pretrained)")
	}
	if err := m.templates.usable(); err != nil {
		log.Warn("model has no chat template: chats and single prompts are refused", "why", err)
	}
}

func (r *Registry) warnAliases(next, old *snapshot) {
	for alias, id := range next.aliases {
		if _, ok := next.models[id]; !ok && old.aliases[alias] != id {
			r.config.Log.Warn("alias of a model that is not loaded", "alias", alias, "model", id)
		}
		if _, ok := next.models[alias]; ok && old.aliases[alias] != id {
			r.config.Log.Warn("alias is hidden by the model of that name", "alias", alias)
		}
	}
}

// findModels walks the folders below dir. A folder that holds a model is not looked into further, and dir itself
// is none.
func findModels(dir string, most int) ([]folder, error) {
	if dir == "" {
		return nil, errors.New("the folder of models is not set")
	}
	var found []folder
	seen := 0
	var walk func(id string, depth int) error
	walk = func(id string, depth int) error {
		if seen++; seen > maxFolders {
			return fmt.Errorf("more than %d folders below %s", maxFolders, dir)
		}
		at := filepath.Join(dir, filepath.FromSlash(id))
		entries, err := os.ReadDir(at)
		if err != nil {
			return err
		}
		if id != "" {
			if f, ok := modelFolder(id, at, entries); ok {
				if found = append(found, f); len(found) > most {
					return fmt.Errorf("more than %d models below %s", most, dir)
				}
				return nil
			}
		}
		for _, entry := range entries {
			name := entry.Name()
			if depth == maxFolderDepth || strings.HasPrefix(name, ".") || !isFolder(at, entry) {
				continue
			}
			// A folder that cannot be read hides no other.
			if err := walk(path.Join(id, name), depth+1); err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
		return nil
	}
	if err := walk("", 0); err != nil {
		return nil, fmt.Errorf("find models: %w", err)
	}
	slices.SortFunc(found, func(a, b folder) int { return strings.Compare(a.id, b.id) })
	return found, nil
}

// isFolder follows links, with which Kubernetes mounts its volumes.
func isFolder(dir string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir()
	}
	info, err := os.Stat(filepath.Join(dir, entry.Name()))
	return err == nil && info.IsDir()
}

// modelFolder says whether the entries of a folder are those of a model.
func modelFolder(id, at string, entries []fs.DirEntry) (folder, bool) {
	f := folder{id: id, path: at}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	switch {
	case slices.Contains(names, tokenizerFile):
		f.refused = checkID(id)
	case slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".tiktoken") || name == "tiktoken.model" }):
		f.refused = fmt.Errorf("a vocabulary in tiktoken's format is not read: convert it with transformers "+
			"(TikTokenConverter) and save the %s beside it", tokenizerFile)
	case slices.Contains(names, "tokenizer.model"), slices.Contains(names, "spiece.model"):
		f.refused = fmt.Errorf("a SentencePiece model is not read: load it with transformers "+
			"(AutoTokenizer.from_pretrained) and save the %s beside it (save_pretrained)", tokenizerFile)
	case slices.Contains(names, "tokenizer_config.json"):
		f.refused = fmt.Errorf("there is no %s: load the tokenizer with transformers (AutoTokenizer.from_pretrained) "+
			"and save it there (save_pretrained)", tokenizerFile)
	default:
		return folder{}, false
	}
	f.signature = signature(at)
	return f, true
}

// checkID refuses ids that could mean something else in a path or a log.
func checkID(id string) error {
	if !utf8.ValidString(id) || len(id) > 512 {
		return errors.New("its id is not UTF-8, or longer than 512 bytes")
	}
	for part := range strings.SplitSeq(id, "/") {
		if part == "" || part == "." || part == ".." || strings.TrimSpace(part) != part {
			return fmt.Errorf("part %q of its id is not a plain name", part)
		}
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r == '\\' || r == ':' || !unicode.IsPrint(r) }) {
		return errors.New(`its id holds a backslash, a colon or a character that does not print`)
	}
	return nil
}

// signature changes when a file of the model does.
func signature(dir string) string {
	h := sha256.New()
	for _, name := range modelFiles {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			continue
		}
		fmt.Fprintf(h, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))
}

func loadModel(f folder, c Config) (*model, error) {
	if f.refused != nil {
		return nil, f.refused
	}
	raw, err := readBounded(filepath.Join(f.path, tokenizerFile), c.MaxModelBytes)
	if err != nil {
		return nil, err
	}
	settings, err := readSettings(f.path)
	if err != nil {
		return nil, err
	}
	if err := settings.checkAddedTokens(raw); err != nil {
		return nil, err
	}
	flags, err := readEngineFlags(f.path)
	if err != nil {
		return nil, err
	}
	e, err := loadEncoder(raw)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", tokenizerFile, err)
	}
	return &model{
		id: f.id, signature: f.signature, encoder: e, templates: loadTemplates(f.path, settings, flags, c), builtAnew: settings.builtAnew(raw),
	}, nil
}

// readBounded reads a file of at most most bytes.
func readBounded(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", name, most)
	}
	return os.ReadFile(name)
}
