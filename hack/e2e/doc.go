// Package e2e holds the end-to-end tests: fake engines, the agent and the aggregator as they are
// deployed, joined by real sockets, and the index compared block by block with the engines' pools.
package e2e
