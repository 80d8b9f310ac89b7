package sse

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// FuzzReader holds the reader against a naive one that has the whole text at once, however the text is split.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "\uFEFFdata: a\r\n\r\nevent: x\rdata\rid: 1\r\r", ": c\n\ndata:a\ndata: b\n\n\n", "data: a\ndata", "event: x\nid: \x00\nretry: 1\n\n",
	} {
		f.Add(s, uint64(1))
		f.Add(s, uint64(0xfedcba9876543210))
	}
	f.Fuzz(func(t *testing.T, text string, cuts uint64) {
		want, wantErr := naive(text)
		all, err := readAll(NewReader(&splitter{text: text, cuts: cuts}))
		if fmt.Sprintf("%q", all) != fmt.Sprintf("%q", want) || err != wantErr {
			t.Fatalf("%q split by %x:\n got  %q %v\n want %q %v", text, cuts, all, err, want, wantErr)
		}
		const limit = 16
		if _, err := readAll(NewReaderSize(&splitter{text: text, cuts: cuts}, limit)); err != wantErr && !errors.Is(err, ErrTooLong) {
			t.Fatalf("%q with a cap: %v", text, err)
		}
	})
}

// splitter gives away 0 to 15 bytes at a time, as the digits of cuts say.
type splitter struct {
	text string
	cuts uint64
}

func (s *splitter) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	n := min(int(s.cuts&15), len(s.text), len(p))
	s.cuts = s.cuts>>4 | s.cuts<<60
	if s.cuts == 0 {
		n = min(len(s.text), len(p))
	}
	copy(p, s.text[:n])
	s.text = s.text[n:]
	return n, nil
}

func naive(text string) ([]got, error) {
	text = strings.TrimPrefix(text, "\uFEFF")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var all []got
	var data []string
	var name, id string
	pending := false
	for i, line := range lines {
		last := i == len(lines)-1
		if line == "" && !last {
			if data != nil {
				all = append(all, got{name, strings.Join(data, "\n"), id})
			}
			data, name, pending = nil, "", false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		if field == "" {
			continue
		}
		pending = true
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
	if pending {
		return append(all, got{name, strings.Join(data, "\n"), id}), io.ErrUnexpectedEOF
	}
	return all, io.EOF
}
