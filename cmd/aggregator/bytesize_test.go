package main

import "testing"

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1024": 1024, "512Mi": 512 << 20, "4G": 4_000_000_000, "1.5Gi": 3 << 29} {
		var n int64
		if err := (byteSize{&n}).Set(text); err != nil || n != want {
			t.Errorf("%s: %d, error %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "much", "-1", "0.5", "1Xi"} {
		n := int64(7)
		if err := (byteSize{&n}).Set(text); err == nil || n != 7 {
			t.Errorf("%q was taken as %d", text, n)
		}
	}
}
