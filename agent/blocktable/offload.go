package blocktable

// storesOnly is the medium of connectors that announce what they take into host memory and, as far as is
// known, not what they drop.
const storesOnly = "cpu"

// offloadSource is what an engine's events have shown of its offload tier.
type offloadSource struct {
	stored, removed bool
	// storesOnly says that stores of that medium are counted and no removal of it has been seen. They are
	// not confirmed, so that they age out, and let go when the table is full.
	storesOnly bool
}

// Reporting says how much an engine tells of its offload tier.
type Reporting string

// Values of Reporting.
const (
	ReportsNothing Reporting = "nothing"     // nothing yet: the tier is unknown, not empty
	ReportsStores  Reporting = "stores_only" // stores, no removal yet
	ReportsAll     Reporting = "stores_and_removals"
	ReportIgnored  Reporting = "ignored" // the configuration does not ask
)

// Reportings lists the values.
func Reportings() []Reporting {
	return []Reporting{ReportsNothing, ReportsStores, ReportsAll, ReportIgnored}
}

// Tier2Reporting returns how much the engine has told of its offload tier.
func (t *Table) Tier2Reporting() Reporting {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.cfg.Tier2 != Tier2Observed:
		return ReportIgnored
	case t.offload.removed:
		return ReportsAll
	case t.offload.stored:
		return ReportsStores
	default:
		return ReportsNothing
	}
}

// knowsOffload says whether what is held at T2 can be confirmed.
func (t *Table) knowsOffload() bool {
	return t.cfg.Tier2 != Tier2Inferred && !t.offload.storesOnly && !t.chunks.counted
}
