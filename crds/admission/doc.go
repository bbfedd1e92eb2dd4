// Package admission says what the API types mean before they are stored: the defaults they get, what is
// refused, and what is legal but will not do what its author expects. All are pure functions of the
// objects handed in, so that webhooks, the folder of policy files and tests give the same answer.
//
// Validate functions report every violation they find, also those that the schema in crds/manifests
// refuses by itself. They judge an object as if Default had been called on it.
package admission
