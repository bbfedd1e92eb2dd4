// Package conformance proves the public contract on a running aggregator, over gRPC. Each row of its
// tables states one rule in its own words and shows it.
//
//	go test ./aggregator/conformance                          an aggregator of its own, on loopback
//	go test ./aggregator/conformance -target host:port        any other
//	go test ./aggregator/conformance -target host:port -admin-url http://host:port
//	                                                          and its /snapshot, /policy and /probe
//
// Rows use tenants of their own and leave what they reported to expire. Against another target the rows
// are skipped that need an empty index; those that need a policy, unless -policy-url names its policy
// endpoint, which each of them overwrites; and those that only InferenceCache passes, unless -ours is given.
package conformance
