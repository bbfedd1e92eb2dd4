package certs

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inject has a webhook configuration trust an authority. The object is read and written as it is, so that
// fields that this process does not know stay. One that is not there is for the next look, which its coming
// causes.
func (r *Rotator) inject(ctx context.Context, kind, name string, authority []byte) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
	switch err := r.manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, object); {
	case apierrors.IsNotFound(err):
		r.log.Warn("the API server does not call the webhooks: their configuration does not exist", "kind", kind, "name", name)
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	changed, err := trust(object, authority, time.Now())
	if err != nil || !changed {
		return err
	}
	if err := r.manager.GetClient().Update(ctx, object); err != nil {
		return fmt.Errorf("write the authority into %s %s: %w", kind, name, err)
	}
	r.log.Info("a webhook configuration has another authority", "kind", kind, "name", name)
	return nil
}

// trust puts the authority into each webhook of a configuration, and says whether that is a change.
func trust(configuration *unstructured.Unstructured, authority []byte, now time.Time) (changed bool, err error) {
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return false, fmt.Errorf("read the webhooks of %s: %w", configuration.GetName(), err)
	}
	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return false, fmt.Errorf("read webhook %d of %s: it is %T, want an object", i, configuration.GetName(), hooks[i])
		}
		text, _, _ := unstructured.NestedString(hook, "clientConfig", "caBundle") // another type is replaced
		before, _ := base64.StdEncoding.DecodeString(text)                        // and so is what cannot be read
		after := base64.StdEncoding.EncodeToString(bundle(authority, before, now))
		if text == after {
			continue
		}
		if err := unstructured.SetNestedField(hook, after, "clientConfig", "caBundle"); err != nil {
			return false, fmt.Errorf("write the authority into webhook %d of %s: %w", i, configuration.GetName(), err)
		}
		changed = true
	}
	if !changed {
		return false, nil
	}
	return true, unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")
}
