package kvevents

// readNameOrMetadata reads position 7 of a positional BlockStored, which three lines of releases use
// differently: an adapter name, a map of metadata with the cache salt, or a list that is of no use.
func (d *Decoder) readNameOrMetadata(c *cursor, ev *Event) (err error) {
	code, err := c.peek()
	if err != nil {
		return err
	}
	switch {
	case isMap(code):
		return d.readMetadata(c, ev)
	case isArray(code):
		return d.skipUnknown(c)
	default:
		ev.LoRAName, err = d.readName(c)
		return err
	}
}

// readMetadata takes anything in the map for a salt: it is there to tell blocks of equal tokens apart,
// and a block not matched costs less than one matched wrongly.
func (d *Decoder) readMetadata(c *cursor, ev *Event) error {
	n, err := c.mapLen()
	if err != nil {
		return err
	}
	for range n {
		key, err := readKey(c)
		if err != nil {
			return err
		}
		if string(key) != "cache_salt" {
			d.batch.UnknownFields++
		}
		if c.takeNil() {
			continue
		}
		if err := readSalt(c, ev); err != nil {
			return err
		}
	}
	return nil
}

// readSalt notes that there is a salt, without keeping it. An empty string is none.
func readSalt(c *cursor, ev *Event) error {
	code, err := c.peek()
	if err != nil {
		return err
	}
	if code != fixstr {
		ev.Salted = true
	}
	return c.skip()
}

// readExtraKeys reads what makes each block more than its tokens: per hash nil or a flat list, in which
// the adapter's name comes first. Anything of another shape marks every block it may speak of.
func (d *Decoder) readExtraKeys(c *cursor, ev *Event) (err error) {
	if d.extras, err = grow(d.extras, len(ev.Hashes), maxHashes); err != nil {
		return err
	}
	start := len(d.extras)
	d.extras = d.extras[:start+len(ev.Hashes)]
	extra := d.extras[start:len(d.extras):len(d.extras)]

	if n, err := c.arrayLen(); err != nil || n != len(extra) {
		for i := range extra {
			extra[i] = ExtraUnknown
		}
		d.batch.UnknownFields++
	} else if err := readExtraEntries(c, ev.LoRAName, extra); err != nil {
		return err
	}
	var all Extra
	for _, e := range extra {
		all |= e
	}
	if all == 0 {
		d.extras = d.extras[:start]
		return nil
	}
	ev.Extra = extra
	return nil
}

func readExtraEntries(c *cursor, adapter string, extra []Extra) error {
	for i := range extra {
		extra[i] = 0
		if c.takeNil() {
			continue
		}
		n := 1 // a key that is not in a list stands alone
		if code, err := c.peek(); err != nil {
			return err
		} else if isArray(code) {
			if n, err = c.arrayLen(); err != nil {
				return err
			}
		}
		for k := range n {
			bit, err := readExtraKey(c, adapter, k == 0)
			if err != nil {
				return err
			}
			extra[i] |= bit
		}
	}
	return nil
}

// readExtraKey classifies one key. The adapter's name is known from its own field and adds nothing; it
// can only be the first key of a block.
func readExtraKey(c *cursor, adapter string, first bool) (Extra, error) {
	code, err := c.peek()
	switch {
	case err != nil:
		return 0, err
	case isStr(code):
		key, err := c.str()
		if first && adapter != "" && string(key) == adapter {
			return 0, err
		}
		return ExtraSalt, err
	case isBin(code):
		return ExtraEmbeds, c.skip()
	case code == pairHead:
		return readExtraPair(c)
	default:
		return ExtraUnknown, c.skip()
	}
}

// readExtraPair reads [id, offset]; the offset is negative where the item began in an earlier block.
func readExtraPair(c *cursor) (Extra, error) {
	end := *c
	if err := end.skip(); err != nil {
		return 0, err
	}
	pair := *c
	c.pos = end.pos
	pair.pos++
	if id, err := pair.peek(); err != nil || !isStr(id) && !isBin(id) {
		return ExtraUnknown, nil
	}
	if err := pair.skip(); err != nil {
		return 0, err
	}
	if _, _, err := pair.integer(); err != nil {
		return ExtraUnknown, nil
	}
	return ExtraMultimodal, nil
}
