package engine

import "encoding/json"

// lenient is a field that other servers use for something else: a value of another shape counts as missing.
type lenient[T any] struct{ value T }

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (l *lenient[T]) UnmarshalJSON(data []byte) error {
	var value T
	if json.Unmarshal(data, &value) == nil {
		l.value = value
	}
	return nil
}

// present is a field that tells null, which some servers write for an empty list, from nothing at all.
type present[T any] struct {
	value T
	found bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *present[T]) UnmarshalJSON(data []byte) error {
	p.found = true
	return json.Unmarshal(data, &p.value)
}
