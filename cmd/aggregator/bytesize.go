package main

import (
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// byteSize is a flag that takes a number of bytes as Kubernetes writes it.
type byteSize struct{ bytes *int64 }

func (b byteSize) String() string {
	if b.bytes == nil {
		return "0"
	}
	return strconv.FormatInt(*b.bytes, 10)
}

func (byteSize) Type() string { return "bytes" }

// Set accepts whole, non-negative quantities.
func (b byteSize) Set(s string) error {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return errors.New("must be a number of bytes, as 512Mi or 4G")
	}
	n := q.Value() // rounded up
	if n < 0 || resource.NewQuantity(n, resource.BinarySI).Cmp(q) != 0 {
		return errors.New("must be a whole number of bytes, 0 or more")
	}
	*b.bytes = n
	return nil
}
