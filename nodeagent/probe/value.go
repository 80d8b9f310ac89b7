package probe

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// The ranges in which a reading can be true.
const (
	coldest, hottest = -40, 150
	mostBytes        = 1 << 50
	mebibyte         = 1 << 20
)

// number reads a figure; nil where the text is none.
func number(text string) *float64 {
	value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// within drops a figure that cannot be true.
func within(value *float64, low, high float64) *float64 {
	if value == nil || *value < low || *value > high {
		return nil
	}
	return value
}

func celsius(value *float64) *float64 { return within(value, coldest, hottest) }

func percent(value *float64) *float64 { return within(value, 0, 100) }

// bytesOf scales a figure to bytes.
func bytesOf(value *float64, unit float64) *int64 {
	if value == nil || *value < 0 || *value*unit > mostBytes {
		return nil
	}
	return new(int64(*value * unit))
}

// minus is what is left of total; nil where either is unknown or they do not fit.
func minus(total, used *int64) *int64 {
	if total == nil || used == nil || *used > *total {
		return nil
	}
	return new(*total - *used)
}

// jsonStart cuts off the lines of warnings that a tool prints before its JSON.
func jsonStart(out []byte) []byte {
	for len(out) > 0 {
		if (out[0] == '{' || out[0] == '[') && json.Valid(out) {
			return out
		}
		_, out, _ = bytes.Cut(out, []byte("\n"))
	}
	return nil
}
