package probe

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
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

// documents visits what may be JSON in a tool's output: warnings stand before and after it, and may begin like it.
func documents(out []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(out) > 0 {
			if out[0] == '{' || out[0] == '[' {
				var document json.RawMessage
				if json.NewDecoder(bytes.NewReader(out)).Decode(&document) == nil && !yield(document) {
					return
				}
			}
			_, out, _ = bytes.Cut(out, []byte("\n"))
		}
	}
}

// firstGPUs is what the first document tells that names a GPU.
func firstGPUs(out []byte, parse func(document []byte) []*ktmsv1.NodeGPU) []*ktmsv1.NodeGPU {
	for document := range documents(out) {
		if gpus := parse(document); len(gpus) > 0 {
			return gpus
		}
	}
	return nil
}
