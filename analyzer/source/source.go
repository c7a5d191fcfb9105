package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Defaults of Options.
const (
	DefaultMaxBytes  = 64 << 30
	DefaultMaxDepth  = 200
	DefaultMaxString = 64 << 10
)

// Options say how to read. The zero value reads every format with the default
// limits.
type Options struct {
	Format    string // one of Formats, for every file; "" finds it by content
	MaxBytes  int64  // decompressed bytes of one file; 0 means DefaultMaxBytes
	MaxDepth  int    // nesting of JSON; 0 means DefaultMaxDepth
	MaxString int    // bytes of a text; longer ones are cut. 0 means DefaultMaxString
	Workers   int    // goroutines that parse; 0 means GOMAXPROCS

	// Remaining are the attributes in which services write what is left of a
	// budget; nil means trace.DefaultRemainingAttributes.
	Remaining []trace.RemainingAttribute

	// Progress, if not nil, is told between batches how many bytes of the
	// files, as they are stored, have been read, and their total size; 0 where
	// the size of an input is not known. It is called on the goroutine that
	// ranges over the batches.
	Progress func(done, total int64)
}

// Source reads a list of files. It implements [trace.Source] and can be read
// more than once, except for standard input.
type Source struct {
	files []inputFile
	stdin io.Reader
	opts  Options
	in    trace.Interner
}

var _ trace.Source = (*Source)(nil)

// Open makes a source of files, folders (read recursively: *.json, *.jsonl,
// *.ndjson, *.pb, *.otlp, *.profile, plain or with .gz or .zst), globs and "-" for stdin. A
// file that is named twice is read once; a pipe or device is read only if its
// own name is given. The only errors are an unknown format
// and an empty list of inputs. An input that cannot be used, because it does not
// exist or for what it holds, is a [*FileError] at its place among the batches,
// and the others are read all the same.
func Open(inputs []string, stdin io.Reader, opts Options) (*Source, error) {
	if opts.Format != "" && !slices.Contains(Formats(), opts.Format) {
		return nil, fmt.Errorf("unknown format %q; valid are %s", opts.Format, strings.Join(Formats(), ", "))
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.MaxDepth <= 0 {
		opts.MaxDepth = DefaultMaxDepth
	}
	if opts.MaxString <= 0 {
		opts.MaxString = DefaultMaxString
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if len(inputs) == 0 {
		return nil, errors.New("no inputs: name files, folders or globs, or - for standard input")
	}
	return &Source{files: listFiles(inputs), stdin: stdin, opts: opts}, nil
}

// openFile is a file while it is read.
type openFile struct {
	trace.File
	read  atomic.Int64  // bytes, before decompression
	total *atomic.Int64 // of all files
	in    inputFile
}

// result is what a worker has to hand out: spans and notes, or a profile, or why a
// file could not be used.
type result struct {
	spans   []trace.Span
	profile []byte
	notes   trace.Notes
	hint    string
	why     *reasons // at the end of a task
	err     error
}

// task is a file, or a block of one.
type task struct {
	file *openFile
	run  func(*reader)
	out  chan result
	last bool // of its file
}

// smallFile is the size up to which a file is one task. Longer ones are cut into
// blocks where their shape allows.
const smallFile = 4 << 20

// Batches implements [trace.Source].
//
//	dispatcher --> work ----> workers --> out of each task
//	    |                                        |
//	    +-------> ordered: tasks in file order --+--> yield
//
// Workers take tasks in the order in which they are handed out, so the oldest
// task always makes progress and full channels never block each other.
func (s *Source) Batches(ctx context.Context) iter.Seq2[trace.Batch, error] {
	return func(yield func(trace.Batch, error) bool) {
		run, cancel := context.WithCancel(ctx)
		defer cancel()
		ordered := make(chan *task, 2*s.opts.Workers)
		work := make(chan *task)
		var read atomic.Int64
		go func() {
			defer close(ordered)
			defer close(work)
			for _, file := range s.files {
				f := &openFile{File: trace.File{Name: file.name}, total: &read, in: file}
				if !s.dispatch(run, f, ordered, work) {
					return
				}
			}
		}()
		for range s.opts.Workers {
			go s.work(run, work)
		}
		s.deliver(ctx, ordered, &read, yield)
	}
}

// deliver yields the results of the tasks in their order.
func (s *Source) deliver(
	ctx context.Context, ordered <-chan *task, read *atomic.Int64, yield func(trace.Batch, error) bool,
) {
	var size int64
	for _, f := range s.files {
		size += f.size
	}
	var (
		found bool // something, in the current file
		notes trace.Notes
		hint  string
		why   reasons
		fail  error
	)
	for t := range receive(ctx, ordered) {
		for res := range receive(ctx, t.out) {
			if fail == nil {
				fail = res.err
			}
			if hint == "" {
				hint = res.hint
			}
			if res.why != nil {
				why.merge(res.why)
			}
			if len(res.spans) == 0 && res.profile == nil && len(res.notes.List()) == 0 {
				continue
			}
			found = found || len(res.spans) > 0 || res.profile != nil
			notes.Merge(res.notes)
			if !yield(trace.Batch{File: &t.file.File, Spans: res.spans, Notes: res.notes, Profile: res.profile}, nil) {
				return
			}
			if s.opts.Progress != nil {
				s.opts.Progress(read.Load(), size)
			}
		}
		if !t.last || ctx.Err() != nil {
			continue
		}
		t.file.Bytes = t.file.read.Load()
		if fail == nil && !found {
			fail = noSpans(t.file.Name, s.opts.Format, notes, why, hint)
		}
		if fail != nil && !yield(trace.Batch{}, &FileError{t.file.Name, fail}) {
			return
		}
		found, notes, hint, why, fail = false, trace.Notes{}, "", reasons{}, nil
	}
	if err := ctx.Err(); err != nil {
		yield(trace.Batch{}, err)
	}
}

// receive ranges over a channel until it is closed or ctx ends.
func receive[T any](ctx context.Context, from <-chan T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for ctx.Err() == nil {
			select {
			case v, ok := <-from:
				if !ok || !yield(v) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// dispatch hands out the tasks of one file; false ends the dispatcher.
func (s *Source) dispatch(ctx context.Context, f *openFile, ordered, work chan<- *task) bool {
	submit := func(run func(*reader), last bool) bool {
		t := &task{file: f, run: run, out: make(chan result, 2), last: last}
		for _, to := range []chan<- *task{ordered, work} {
			select {
			case to <- t:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	if f.in.size > 0 && f.in.size <= smallFile {
		return submit(func(r *reader) { s.readFile(r, f) }, true)
	}
	content, form, err := s.open(f)
	if err != nil {
		return submit(func(r *reader) { r.emit(result{err: err}) }, true)
	}
	if form == documents || form == message || form == whole {
		if !submit(func(r *reader) { r.readContent(content, form) }, true) {
			content.Close()
			return false
		}
		return true
	}
	defer content.Close()
	for cut := newBlocks(content.stream, form); ; {
		b, ok := cut.next()
		if !ok {
			break
		}
		if !submit(func(r *reader) { r.readBlock(b, form) }, false) {
			return false
		}
	}
	return submit(func(r *reader) { r.endContent(content.stream) }, true)
}

// work runs tasks until there are no more.
func (s *Source) work(ctx context.Context, tasks <-chan *task) {
	r := newReader(s.opts, &s.in)
	for t := range tasks {
		r.begin()
		r.file, r.line, r.base, r.hint = t.file.Name, 0, 0, ""
		r.spans, r.notes, r.noted, r.holds = nil, trace.Notes{}, 0, 0
		r.reasons = reasons{}
		r.json.resetBytes(nil)
		r.format = jsonFormats[t.file.Format]
		r.emit = func(res result) bool {
			select {
			case t.out <- res:
				return true
			case <-ctx.Done():
				return false
			}
		}
		t.run(r)
		if why := r.reasons; r.hint != "" || why != (reasons{}) {
			r.emit(result{hint: r.hint, why: &why})
		}
		close(t.out)
	}
}

// content is an open file, decompressed.
type content struct {
	*stream
	file    *openFile
	closers []io.Closer
}

// Close closes the file.
func (c *content) Close() {
	for _, closer := range c.closers {
		_ = closer.Close() // it was only read: nothing can be lost
	}
}

// open opens f and finds its format and shape.
func (s *Source) open(f *openFile) (*content, shape, error) {
	file, err := f.in.open(s.stdin)
	if err != nil {
		return nil, 0, err
	}
	c := &content{file: f, closers: []io.Closer{file}}
	plain, err := decompress(&countedReader{file, f}, s.opts.MaxBytes)
	if err != nil {
		c.Close()
		return nil, 0, withoutPath(err)
	}
	c.closers = []io.Closer{plain, file}
	c.stream = newStream(plain, s.opts.MaxBytes)
	format, form, err := sniff(c.stream, s.opts.Format)
	if err != nil {
		c.Close()
		return nil, 0, err
	}
	f.Format = format
	return c, form, nil
}

// countedReader counts what is read of a file.
type countedReader struct {
	src  io.Reader
	file *openFile
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.file.read.Add(int64(n))
	c.file.total.Add(int64(n))
	return n, err
}

// readFile reads a whole file.
func (s *Source) readFile(r *reader, f *openFile) {
	content, form, err := s.open(f)
	if err != nil {
		r.emit(result{err: err})
		return
	}
	r.format = jsonFormats[f.Format]
	r.readContent(content, form)
}

// readContent reads an open file to its end and closes it.
func (r *reader) readContent(c *content, form shape) {
	defer c.Close()
	switch form {
	case documents:
		r.readDocuments(c.stream)
	case message:
		r.readMessage(c.stream)
	case whole:
		r.readProfile(c)
		return
	default:
		for cut := newBlocks(c.stream, form); !errors.Is(r.json.err, errStopped); {
			b, ok := cut.next()
			if !ok {
				break
			}
			r.readBlock(b, form)
		}
	}
	r.endContent(c.stream)
}

// A profile is decompressed whole before it can be checked. A few bytes decompress
// to any number of zeros; spans with their ids never shrink to a hundredth.
const (
	profileStep  = 8 << 20 // any profile may be as long
	profileRatio = 100     // longer ones at most as often as long as the file
)

// readProfile hands out a profile. Half of one is of no use.
func (r *reader) readProfile(c *content) {
	var whole bytes.Buffer
	for {
		if _, err := io.CopyN(&whole, c, profileStep); err != nil {
			break // how the stream ended is asked for below
		}
		if int64(whole.Len()) > profileRatio*c.file.read.Load() {
			r.emit(result{err: errors.New("this is no profile: nothing compresses to less than a hundredth that has traces in it")})
			return
		}
	}
	switch err, cut := c.failure(); {
	case err != nil:
		r.emit(result{err: err})
	case cut:
		r.emit(result{err: fmt.Errorf("this profile is not whole, copy it again: %w", errCutShort)})
	default:
		r.emit(result{profile: whole.Bytes()})
	}
}

// readBlock reads lines or frames and hands out what they hold.
func (r *reader) readBlock(b block, form shape) {
	if form == frames {
		r.readFrames(b)
	} else {
		r.readLines(b)
	}
	r.flush()
	b.release()
}

// errCutShort is the reason where compressed data is not whole.
var errCutShort = errors.New("the compressed data is incomplete")

// endContent hands out the rest and tells how the stream ended.
func (r *reader) endContent(s *stream) {
	err, cut := s.failure()
	if cut {
		r.line, r.base = 0, s.max-s.left
		r.json.resetBytes(nil)
		r.noteBroken(trace.NoteTruncated, errCutShort)
	}
	r.holds = 0
	r.flush()
	if err != nil {
		r.emit(result{err: err})
	}
}
