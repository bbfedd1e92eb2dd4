package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resourceRules are those that the API server has for a container's resources, so that a Pod made from
// them is not refused later. Claims are refused: they need a Pod that has them.
func resourceRules(r corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var c check
	c.forbidden(len(r.Claims) > 0, path.Child("claims"), "must not have claims")
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		c.add(resourceEntry(name, r.Limits[name], path.Child("limits").Key(string(name))))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		at := path.Child("requests").Key(string(name))
		c.add(resourceEntry(name, r.Requests[name], at))
		c.add(requestAgainstLimit(name, r, path))
	}
	return c.errs
}

func requestAgainstLimit(name corev1.ResourceName, r corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	request := r.Requests[name]
	limit, limited := r.Limits[name]
	switch {
	case limited && limit.Cmp(request) < 0:
		return field.ErrorList{field.Invalid(path, limit.String(), fmt.Sprintf("a limit must not be below its request: %s", name))}
	case isStandard(name):
		return nil
	case !limited:
		return field.ErrorList{field.Required(path, fmt.Sprintf("a limit is needed for %s, equal to its request", name))}
	case limit.Cmp(request) != 0:
		return field.ErrorList{field.Invalid(path, limit.String(), fmt.Sprintf("limit and request must be equal for %s", name))}
	}
	return nil
}

// isStandard says whether request and limit of the resource may differ.
func isStandard(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

func resourceEntry(name corev1.ResourceName, amount resource.Quantity, path *field.Path) field.ErrorList {
	var c check
	c.invalid(amount.Sign() < 0, path, amount.String(), "must not be negative")
	size, isHugePages := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	switch {
	case isStandard(name):
	case isHugePages:
		c.add(hugePages(size, amount, path))
	case !isExtended(string(name)):
		c.invalid(true, path, string(name), "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a vendor's prefix, such as example.com/device")
	default:
		whole := amount.DeepCopy()
		whole.RoundUp(0)
		c.invalid(whole.Cmp(amount) != 0, path, amount.String(), "must be a whole number")
	}
	return c.errs
}

func hugePages(size string, amount resource.Quantity, path *field.Path) field.ErrorList {
	page, err := resource.ParseQuantity(size)
	if err != nil || page.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, size, "hugepages- must be followed by the size of a page, such as 2Mi")}
	}
	pages, fits := amount.AsInt64()
	pageBytes, pageFits := page.AsInt64()
	if !fits || !pageFits || pages%pageBytes != 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be a multiple of the page size "+size)}
	}
	return nil
}

// isExtended says whether name is a resource of a vendor, as nvidia.com/gpu is.
func isExtended(name string) bool {
	domain, _, prefixed := strings.Cut(name, "/")
	native := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
	return prefixed && !native && !strings.HasPrefix(name, "requests.") && len(validation.IsQualifiedName(name)) == 0
}
