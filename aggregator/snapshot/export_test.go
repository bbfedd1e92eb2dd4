package snapshot

import "time"

// Size returns how many names are remembered.
func (d *Directory) Size() (models, holders int) { return len(d.models), len(d.holders) }

// SetClock sets the time that the directory goes by.
func (d *Directory) SetClock(now func() time.Time) { d.now = now }
