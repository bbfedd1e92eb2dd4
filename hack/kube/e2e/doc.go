// Package e2e runs the whole system on a real API server: the commands as processes, each under its own
// ServiceAccount with the roles of the install manifests, and fake engines on the addresses of pods that kwok
// lets seem to run.
package e2e
