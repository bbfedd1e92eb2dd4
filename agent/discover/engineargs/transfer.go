package engineargs

import "strings"

// maxConnectors bounds connectors within connectors.
const maxConnectors = 16

// transfer reads which connectors vLLM moves KV blocks with: what becomes of blocks that leave the GPU, and
// the part that the engine has in disaggregated serving.
func (r *reader) transfer(l *Launch) {
	if backend := r.text("kv-offloading-backend", "native"); r.text("kv-offloading-size", "") != "" {
		l.Offload = OffloadObserved
		if backend == "lmcache" {
			l.Offload = OffloadInferred
		}
	}
	queue := []map[string]any{r.object("kv-transfer-config")}
	for n := 0; n < len(queue) && n < maxConnectors; n++ {
		config := queue[n]
		name, _ := config["kv_connector"].(string)
		role, _ := config["kv_role"].(string)
		switch {
		case strings.HasPrefix(name, "LMCacheMP"), strings.Contains(name, "Offload"):
			l.Offload = OffloadObserved
		case strings.HasPrefix(name, "LMCache"), strings.HasPrefix(name, "MooncakeStore"), strings.HasPrefix(name, "Ascend"):
			l.Offload = OffloadInferred
		}
		switch role {
		case "kv_producer":
			l.Role = RolePrefill
		case "kv_consumer":
			l.Role = RoleDecode
		}
		extra, _ := config["kv_connector_extra_config"].(map[string]any)
		inner, _ := extra["connectors"].([]any)
		for _, c := range inner {
			if m, ok := c.(map[string]any); ok {
				queue = append(queue, m)
			}
		}
	}
}
