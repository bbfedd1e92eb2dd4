// Package conformance proves the public contract on a running aggregator, over gRPC. Each row of its
// tables states one rule in its own words and shows it.
//
//	go test ./aggregator/conformance                          an aggregator of its own, on loopback
//	go test ./aggregator/conformance -target host:port        any other
//	go test ./aggregator/conformance -target host:port -admin-url http://host:port
//	                                                          and its /snapshot, /policy and /probe
//
// Rows use tenants of their own and leave what they reported to expire. Against another target the rows
// are skipped that need a policy, an empty index or a field that only InferenceCache has, unless
// -policy-url names the target's policy endpoint.
package conformance
