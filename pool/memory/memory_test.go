package memory_test

import (
	"testing"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/pooltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	pooltest.Run(t, pooltest.Opener{Fresh: func(t *testing.T, clock *pooltest.Clock) pool.Meter {
		return memory.New(memory.Options{Now: clock.Now})
	}})
}
