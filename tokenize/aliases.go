package tokenize

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

const maxAliases = 10_000

// readAliases reads a file of other names for models, such as the names that engines serve them under and the
// LoRA adapters of a base model:
//
//	aliases:
//	  qwen: Qwen/Qwen3-8B
//	  sql-adapter: Qwen/Qwen3-8B
func readAliases(name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := readBounded(name, 4<<20)
	if err != nil {
		return nil, fmt.Errorf("read aliases: %w", err)
	}
	var file struct {
		Aliases map[string]string `yaml:"aliases"`
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read aliases %s: %w", name, err)
	}
	if len(file.Aliases) > maxAliases {
		return nil, fmt.Errorf("read aliases %s: %d names, at most %d are accepted", name, len(file.Aliases), maxAliases)
	}
	for alias, id := range file.Aliases {
		if alias == "" || id == "" {
			return nil, fmt.Errorf("read aliases %s: %q means %q: want two names", name, alias, id)
		}
	}
	return file.Aliases, nil
}
