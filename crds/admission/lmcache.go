package admission

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

const maxPort = 65535

func lmCacheRules(b *v1alpha1.CacheBackend, path *field.Path) field.ErrorList {
	l := b.Spec.LMCache
	if l == nil {
		return nil
	}
	var c check
	podLocal, nodeLocal := path.Child("podLocal"), path.Child("nodeLocal")
	c.add(oneOf(path.Child("topology"), l.Topology, v1alpha1.TopologyPodLocal, v1alpha1.TopologyNodeLocal))
	c.add(atLeast(path.Child("chunkSizeTokens"), l.ChunkSizeTokens, 1))
	isPodLocal, isNodeLocal := l.Topology == v1alpha1.TopologyPodLocal, l.Topology == v1alpha1.TopologyNodeLocal
	c.required(isPodLocal && l.PodLocal == nil, podLocal, "is needed for topology PodLocal")
	c.forbidden(!isPodLocal && l.PodLocal != nil, podLocal, "is for topology PodLocal only")
	c.required(isNodeLocal && l.NodeLocal == nil, nodeLocal, "is needed for topology NodeLocal")
	c.forbidden(!isNodeLocal && l.NodeLocal != nil, nodeLocal, "is for topology NodeLocal only")
	if l.PodLocal != nil {
		c.add(podLocalServer(&l.PodLocal.Server, podLocal.Child("server")))
	}
	if l.NodeLocal != nil {
		c.add(nodeLocalServer(&l.NodeLocal.Server, nodeLocal.Child("server")))
		c.add(within(nodeLocal.Child("idleRetentionSeconds"), *l.NodeLocal.IdleRetentionSeconds, 0, 86400))
		if s := l.NodeLocal.Scheduling; s != nil {
			c.add(atLeast(nodeLocal.Child("scheduling", "terminationGracePeriodSeconds"), s.TerminationGracePeriodSeconds, 0))
		}
	}
	return c.errs
}

func podLocalServer(s *v1alpha1.PodLocalServer, path *field.Path) field.ErrorList {
	var c check
	c.add(pinnedImage(s.Image, path.Child("image")))
	c.add(within(path.Child("port"), s.Port, 1, maxPort))
	c.invalid(s.Port == v1alpha1.PortKVEvents || s.Port == v1alpha1.PortLMCacheHTTP, path.Child("port"), s.Port, fmt.Sprintf(
		"must not be %d, where engines publish KV events, or %d, where the server answers probes",
		v1alpha1.PortKVEvents, v1alpha1.PortLMCacheHTTP))
	c.add(atLeast(path.Child("maxWorkers"), &s.MaxWorkers, 1))
	c.add(capacity(s.L1Capacity, s.Resources, path))
	return c.errs
}

// gpu is the resource that engines, not cache servers, ask for.
const gpu corev1.ResourceName = "nvidia.com/gpu"

func nodeLocalServer(s *v1alpha1.NodeLocalServer, path *field.Path) field.ErrorList {
	var c check
	c.add(pinnedImage(s.Image, path.Child("image")))
	c.add(within(path.Child("port"), s.Port, 1, maxPort))
	c.add(within(path.Child("httpPort"), s.HTTPPort, 1, maxPort))
	c.invalid(s.Port == s.HTTPPort, path.Child("httpPort"), s.HTTPPort, "must differ from port")
	c.add(atLeast(path.Child("maxGPUWorkers"), &s.MaxGPUWorkers, 1))
	c.add(atLeast(path.Child("maxCPUWorkers"), &s.MaxCPUWorkers, 1))
	_, requested := s.Resources.Requests[gpu]
	_, limited := s.Resources.Limits[gpu]
	c.forbidden(requested || limited, path.Child("resources"), "must not ask for nvidia.com/gpu: the GPUs are the engines'")
	c.add(capacity(s.L1Capacity, s.Resources, path))
	return c.errs
}

var pinned = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

const maxImageLength = 512

func pinnedImage(image string, path *field.Path) field.ErrorList {
	var c check
	c.invalid(!pinned.MatchString(image), path, image, "must be repo@sha256:<64 lower-case hex digits>: a tag can move")
	c.add(shortEnough(path, image, maxImageLength))
	return c.errs
}

// serverOverhead is the memory a server needs beside its blocks.
var serverOverhead = resource.MustParse("1Gi")

// capacity judges a server's resources: the blocks lie in shared memory, which counts as the container's.
func capacity(l1 resource.Quantity, r corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var c check
	c.invalid(l1.Sign() <= 0, path.Child("l1Capacity"), l1.String(), "must be above 0")
	resources := path.Child("resources")
	cpu := r.Requests[corev1.ResourceCPU]
	c.invalid(cpu.Sign() <= 0, resources, cpu.String(), "requests.cpu above 0 is required")
	need := l1.DeepCopy()
	need.Add(serverOverhead)
	for _, side := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		memory := side.list[corev1.ResourceMemory]
		c.invalid(memory.Cmp(need) < 0, resources, memory.String(),
			side.name+".memory of at least l1Capacity + 1Gi is required: the cache lies in shared memory, which counts as the container's")
	}
	c.add(resourceRules(r, resources))
	return c.errs
}
