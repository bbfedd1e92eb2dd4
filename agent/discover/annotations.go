package discover

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/discover/engineargs"
)

// Keys by which the owner of a pod says what its command does not show. All are annotations; Engine and
// EngineContainer may be labels as well.
const (
	domain = "inferencecache.io/"

	Engine          = domain + "engine"           // vllm, sglang, or none: leave the pod alone
	EngineContainer = domain + "engine-container" // name of the one container that is an engine
	EngineConfig    = domain + "engine-config"    // text of the file that --config names
	Model           = domain + "model"            // served names, separated by commas
	Port            = domain + "port"             // of the HTTP server
	EventsEndpoint  = domain + "kv-events-endpoint"
	ReplayEndpoint  = domain + "kv-events-replay-endpoint"
	EventsTopic     = domain + "kv-events-topic"
	Ranks           = domain + "data-parallel-ranks"
	FirstRank       = domain + "data-parallel-first-rank"
	HashScheme      = domain + "hash-scheme"
	Tier2           = domain + "tier2"      // observed, inferred or none
	LoRANames       = domain + "lora-names" // ID=NAME, separated by commas
)

// none as the engine of a pod means that there is none.
const none = "none"

// said is what the owner of a pod says of its engine.
type said struct {
	engineargs.Owner
	engine, container string
	hashScheme        string
	tier2             config.Tier2
	loraNames         map[int64]string
	wrong             []engineargs.Problem
}

// ownerOf reads the annotations and labels of a pod.
func ownerOf(pod *corev1.Pod) said {
	labelled := func(key string) string {
		if value := pod.Annotations[key]; value != "" {
			return value
		}
		return pod.Labels[key]
	}
	a := pod.Annotations
	s := said{engine: labelled(Engine), container: labelled(EngineContainer), hashScheme: a[HashScheme], tier2: config.Tier2(a[Tier2])}
	s.Owner = engineargs.Owner{
		Models: list(a[Model]), Port: a[Port], EventsEndpoint: a[EventsEndpoint], ReplayEndpoint: a[ReplayEndpoint], Topic: a[EventsTopic],
		Ranks: a[Ranks], FirstRank: a[FirstRank], Config: a[EngineConfig],
	}
	switch s.engine {
	case "", none:
	case string(engineargs.VLLM), string(engineargs.SGLang):
		s.Kind = engineargs.Kind(s.engine)
	default:
		s.refuse(Engine, s.engine, "vllm, sglang or none")
	}
	switch s.tier2 {
	case "", config.Tier2Observed, config.Tier2Inferred, config.Tier2None:
	default:
		s.refuse(Tier2, string(s.tier2), "observed, inferred or none")
		s.tier2 = ""
	}
	for _, pair := range list(a[LoRANames]) {
		number, name, _ := strings.Cut(pair, "=")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || name == "" {
			s.refuse(LoRANames, pair, "ID=NAME, separated by commas")
			continue
		}
		if s.loraNames == nil {
			s.loraNames = map[int64]string{}
		}
		s.loraNames[id] = name
	}
	return s
}

func (s *said) refuse(key, value, want string) {
	s.wrong = append(s.wrong, engineargs.Problem{
		Reason: engineargs.EngineUnreadable, Text: fmt.Sprintf("%s: %.80q is unknown; want %s", key, value, want),
	})
}

// list splits at commas.
func list(value string) (all []string) {
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
