// Runs the blocks of a grid one after the other: fibers, barriers, copies and matrix units of sm_80 and sm_90a.
#include "host.h"
#include <algorithm>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

Extents threadIdx, blockIdx, gridDim, blockDim;
unsigned char* shared;

namespace {
const int MOST = 1024, STACK = 1 << 17;
char trouble[256];
bool failed;
int reversed_order, late;

// --- fibers ---------------------------------------------------------------------------------------
int threads, current;
bool done[MOST];
char* stacks[MOST];
void (*body)(void**);
void** given;

#if defined(__x86_64__)
void* places[MOST];
void* home;
extern "C" void switch_fiber(void** from, void* to);
asm(R"(
.text
.type switch_fiber, @function
switch_fiber:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
void to_fiber(int t) { switch_fiber(&home, places[t]); }
void to_home() { switch_fiber(&places[current], home); }
#else
ucontext_t places[MOST], home;
void to_fiber(int t) { swapcontext(&home, &places[t]); }
void to_home() { swapcontext(&places[current], &home); }
#endif

void fail(const char* what) {
    if (!failed) snprintf(trouble, sizeof(trouble), "block %d, thread %d: %s", blockIdx.x, current, what);
    failed = true;
    for (;;) to_home();
}

// --- meetings -------------------------------------------------------------------------------------
struct Meeting {
    int first, count, arrived, times;
};
const int GROUPS = 32, AMONG = 40, BLOCK = 41, MEETINGS = 42;
Meeting meetings[MEETINGS];
enum Waits { NOTHING, MEETS, BARRIER };
struct Reason { Waits kind; int which; int number; } reasons[MOST];
struct Barrier { int bytes; short pending; unsigned char arrivals, phase; };
Barrier& barrier_at(unsigned at) { return *(Barrier*)(shared + at); }

bool is_ready(int t) {
    const Reason& r = reasons[t];
    if (r.kind == MEETS) return meetings[r.which].times != r.number;
    if (r.kind == BARRIER) return barrier_at(r.which).phase != r.number;
    return true;
}
void pause(Waits kind, int which, int number) {
    reasons[current] = {kind, which, number};
    to_home();
}
bool is_full(const Meeting& m) {
    int here = 0;
    for (int t = m.first; t < m.first + m.count && t < threads; ++t) here += !done[t];
    return m.arrived && m.arrived >= here;
}
void go_on(Meeting& m) { m.arrived = 0; ++m.times; }
// The last one to come does what all have come for.
template <class F> void meet(int which, F work) {
    Meeting& m = meetings[which];
    if (current < m.first || current >= m.first + m.count) fail("meets others than its own");
    ++m.arrived;
    if (is_full(m)) {
        work();
        go_on(m);
    } else pause(MEETS, which, m.times);
}
void meet(int which) { meet(which, [] {}); }

// --- copies ---------------------------------------------------------------------------------------
struct Copy { unsigned to; const void* from; int bytes; };
std::vector<std::vector<Copy>> copies[MOST];  // the last group is not committed yet
struct Map { uint64_t address, kind, rank, extents[3], pitches[2], box[2], swizzle, begin, end, unused[3]; };
struct BoxCopy { Map map; unsigned to; int at[3]; unsigned barrier; };
std::vector<BoxCopy> boxes;

void check_phase(Barrier& b) {
    if (b.pending || b.bytes) return;
    b.phase ^= 1;
    b.pending = b.arrivals;
}
unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 7) << 4; }

void bring(const BoxCopy& c) {
    const Map& m = c.map;
    const int size = m.kind == 11 ? 4 : m.kind == 0 ? 1 : 2, wide = m.box[0], high = m.box[1];
    for (int l = 0; l < high; ++l)
        for (int e = 0; e < wide; ++e) {
            const int64_t column = int64_t(c.at[0]) + e, line = int64_t(c.at[1]) + l, start = c.at[2];
            const bool inside = column >= 0 && column < int64_t(m.extents[0]) && line >= 0 &&
                line < int64_t(m.extents[1]) && (m.rank < 3 || (start >= 0 && start < int64_t(m.extents[2])));
            unsigned number = 0;
            if (inside) {
                uint64_t from = m.address + column * size + line * m.pitches[0];
                if (m.rank == 3) from += start * m.pitches[1];
                number = ~0u;  // what is nobody's memory is not a number
                if (from >= m.begin && from + size <= m.end) memcpy(&number, (const void*)from, size);
                if (m.kind == 11) number = as_tf32(bits_as<float>(number));
            }
            memcpy(shared + swizzled(c.to + l * wide * size + e * size), &number, size);
        }
    Barrier& b = barrier_at(c.barrier);
    b.bytes -= wide * high * size;
    check_phase(b);
}

bool bring_one() {
    if (boxes.empty()) return false;
    const BoxCopy last = boxes.back();
    boxes.pop_back();
    bring(last);
    return true;
}

// --- products -------------------------------------------------------------------------------------
struct Product {
    Kind kind;
    int columns;
    std::vector<void*> sums;
    unsigned left[4];
    bool by_registers, more, x_turned, y_turned;
    uint64_t x, y;
};
std::vector<std::vector<Product>> products[MOST];  // the last group is not committed yet

int bytes_of(Kind kind) { return kind == TF32 ? 4 : kind == F16 || kind == BF16 ? 2 : 1; }
float value_of(Kind kind, unsigned bits) {
    switch (kind) {
        case F16: return from_f16(bits);
        case BF16: return bits_as<float>(bits << 16);
        case TF32: return bits_as<float>(bits & ~0x1fffu);
        case E4M3: return from_e4m3(bits & 255);
        case E5M2: return from_e5m2(bits & 255);
        case S8: return (signed char)bits;
        default: return bits & 255;
    }
}

// An operand in shared memory: element r of the rows, k of the sum, as a descriptor says.
float element(Kind kind, uint64_t where, bool turned, int r, int k) {
    const int size = bytes_of(kind);
    const unsigned start = (where & 0x3fff) << 4, panel = (where >> 16 & 0x3fff) << 4, lines = (where >> 32 & 0x3fff) << 4;
    if (where >> 62 != 1) fail("an operand whose pieces are not exchanged in lines of 128 bytes");
    unsigned at;
    if (turned) {
        const int wide = 128 / size;
        at = start + r / wide * panel + r % wide * size + k / 8 * lines + k % 8 * 128;
    } else at = start + r / 8 * lines + r % 8 * 128 + k * size;
    unsigned bits = 0;
    memcpy(&bits, shared + swizzled(at), size);
    return value_of(kind, bits);
}

template <class T> void add_up(int group, const Product& p, size_t number) {
    static float x[64][32], y[32][256];
    static T sums[64][256];
    const int depth = 32 / bytes_of(p.kind), n = p.columns, each = depth / 8;
    for (int k = 0; k < depth; ++k) {
        for (int c = 0; c < n; ++c) y[k][c] = element(p.kind, p.y, p.y_turned, c, k);
        if (!p.by_registers)
            for (int r = 0; r < 64; ++r) x[r][k] = element(p.kind, p.x, p.x_turned, r, k);
    }
    for (int t = 0; t < 128; ++t) {
        const Product& own = products[group * 128 + t][0][number];
        if (own.x != p.x || own.y != p.y || own.columns != n) fail("threads of a group multiply different operands");
        const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
        for (int i = 0; i < n / 2; ++i)
            sums[row + i / 2 % 2 * 8][i / 4 * 8 + column + i % 2] = p.more ? *(T*)own.sums[i] : T(0);
        for (int i = 0; p.by_registers && i < 4; ++i)
            for (int e = 0; e < each; ++e) {
                const int k = (t % 4 + i / 2 * 4) * each + e;
                x[row + i % 2 * 8][k] = value_of(p.kind, own.left[i] >> e * (32 / each));
            }
    }
    for (int r = 0; r < 64; ++r)
        for (int k = 0; k < depth; ++k) {
            const T left = x[r][k];
            for (int c = 0; c < n; ++c) sums[r][c] += left * T(y[k][c]);
        }
    for (int t = 0; t < 128; ++t) {
        const Product& own = products[group * 128 + t][0][number];
        const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
        for (int i = 0; i < n / 2; ++i) *(T*)own.sums[i] = sums[row + i / 2 % 2 * 8][i / 4 * 8 + column + i % 2];
    }
}

// The oldest products of a group of four warps, until so many committed ones are left.
void finish(int group, int left) {
    auto& first = products[group * 128];
    while (int(first.size()) - 1 > left) {
        for (size_t n = 0; n < first[0].size(); ++n) {
            const Product p = first[0][n];
            if (p.kind == S8 || p.kind == U8) add_up<int>(group, p, n);
            else add_up<float>(group, p, n);
        }
        for (int t = 0; t < 128; ++t) products[group * 128 + t].erase(products[group * 128 + t].begin());
    }
}

// --- blocks ---------------------------------------------------------------------------------------
void leave() {
    done[current] = true;
    if (products[current].size() != 1 || products[current][0].size()) fail("ends while its products are under way");
    for (Meeting& m : meetings)
        if (current >= m.first && current < m.first + m.count && is_full(m)) go_on(m);
    for (;;) to_home();
}
void enter() {
    body(given);
    leave();
}

void begin(int t) {
    if (!stacks[t]) stacks[t] = (char*)aligned_alloc(64, STACK);
#if defined(__x86_64__)
    void** top = (void**)(stacks[t] + STACK) - 3;
    *--top = (void*)enter;
    for (int n = 0; n < 6; ++n) *--top = nullptr;
    places[t] = top;
#else
    getcontext(&places[t]);
    places[t].uc_stack.ss_sp = stacks[t];
    places[t].uc_stack.ss_size = STACK;
    places[t].uc_link = &home;
    makecontext(&places[t], enter, 0);
#endif
    done[t] = false;
    reasons[t] = {NOTHING, 0, 0};
    copies[t].assign(1, {});
    products[t].assign(1, {});
}

void run_block() {
    for (int n = 0; n < 32; ++n) meetings[n] = {32 * n, 32, 0, 0};
    for (int n = 0; n < 8; ++n) meetings[GROUPS + n] = {128 * n, 128, 0, 0};
    meetings[AMONG] = meetings[BLOCK] = {0, threads, 0, 0};
    boxes.clear();
    for (int t = 0; t < threads; ++t) begin(t);
    for (;;) {
        bool moved = false;
        int left = 0;
        for (int n = 0; n < threads && !failed; ++n) {
            const int t = reversed_order ? threads - 1 - n : n;
            if (done[t]) continue;
            ++left;
            if (!is_ready(t)) continue;
            moved = true;
            current = threadIdx.x = t;
            to_fiber(t);
        }
        if (failed || !left) return;
        if (moved || bring_one()) continue;
        snprintf(trouble, sizeof(trouble), "block %d: %d threads wait for what nobody does", blockIdx.x, left);
        failed = true;
        return;
    }
}
}  // namespace

void meet_block() { meet(BLOCK); }
void consumer_barrier(int count) {
    meetings[AMONG].count = count;
    meet(AMONG);
}
void meet_warp() { meet(current / 32); }
static unsigned words[MOST];
unsigned shuffled(unsigned x, int lane) {
    const int self = current;
    words[self] = x;
    meet(self / 32);
    const unsigned y = words[self / 32 * 32 + lane];
    meet(self / 32);
    return y;
}

void barrier_start(unsigned barrier, int arrivals) {
    barrier_at(barrier) = {0, short(arrivals), (unsigned char)arrivals, 0};
}
void barrier_expect(unsigned barrier, int bytes) { barrier_at(barrier).bytes += bytes; }
void barrier_arrive(unsigned barrier) {
    Barrier& b = barrier_at(barrier);
    if (b.pending <= 0) fail("arrives at a barrier more often than is expected");
    --b.pending;
    check_phase(b);
}
void barrier_wait(unsigned barrier, int phase) {
    while (barrier_at(barrier).phase == phase) pause(BARRIER, barrier, phase);
}

void copy_later(unsigned to, const void* from, int bytes) {
    if (to % bytes || (uintptr_t)from % bytes) fail("copies a piece that does not begin at a multiple of its size");
    copies[current].back().push_back({to, from, bytes});
    if (!late) memcpy(shared + to, from, bytes);
}
void commit_copies() { copies[current].emplace_back(); }
void wait_copies(int left) {
    auto& groups = copies[current];
    while (int(groups.size()) - 1 > left) {
        if (late)
            for (const Copy& c : groups[0]) memcpy(shared + c.to, c.from, c.bytes);
        groups.erase(groups.begin());
    }
}
void copy_box(int rank, unsigned to, const void* map, int column, int line, int start, unsigned barrier) {
    BoxCopy made = {*(const Map*)map, to, {column, line, start}, barrier};
    const Map& m = made.map;
    if (int(m.rank) != rank) fail("copies a box of another rank than its map has");
    if (to % 1024) fail("copies a box to a place that is no multiple of 1024");
    if (m.address % 16 || m.pitches[0] % 16) fail("copies a box of lines that do not begin at multiples of 16 bytes");
    boxes.push_back(made);
    if (!late) bring_one();
}

void matrices(unsigned (&r)[4], unsigned from, bool turned) {
    const int self = current, first = self / 32 * 32, lane = self % 32;
    if (from % 16) fail("reads a matrix whose rows do not begin at multiples of 16 bytes");
    words[self] = from;
    meet(self / 32);
    for (int i = 0; i < 4; ++i) {
        r[i] = 0;
        for (int e = 0; e < 2; ++e) {
            const int row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
            r[i] |= *(unsigned short*)(shared + words[first + 8 * i + row] + 2 * column) << 16 * e;
        }
    }
    meet(self / 32);
}

static unsigned fragments[MOST][6];
template <class T>
static void warp_sums(Kind kind, void* const (&sums)[4], int first, int lane) {
    const int bits = 8 * bytes_of(kind), per_word = 32 / bits;
    for (int h = 0; h < 2; ++h)
        for (int e = 0; e < 2; ++e) {
            T& sum = *(T*)sums[2 * h + e];
            for (int k = 0; k < 8 * per_word; ++k) {
                const int word = k / per_word, shift = k % per_word * bits;
                const unsigned x = fragments[first + lane / 4 * 4 + word % 4][h + word / 4 * 2] >> shift;
                const unsigned y = fragments[first + (lane % 4 * 2 + e) * 4 + word % 4][4 + word / 4] >> shift;
                sum += T(value_of(kind, x)) * T(value_of(kind, y));
            }
        }
}
void warp_product(Kind kind, void* const (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const int self = current, first = self / 32 * 32, lane = self % 32;
    const unsigned own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(fragments[self], own, sizeof(own));
    meet(self / 32);
    if (kind == S8 || kind == U8) warp_sums<int>(kind, sums, first, lane);
    else warp_sums<float>(kind, sums, first, lane);
    meet(self / 32);
}

void fence_products() {}
void group_product(Kind kind, int columns, void* const* sums, const unsigned* registers, uint64_t x, uint64_t y,
                   bool more, bool x_turned, bool y_turned) {
    if ((x_turned || y_turned) && bytes_of(kind) != 2) fail("turns an operand that is not of 16 bits");
    Product made = {kind, columns, {sums, sums + columns / 2}, {}, registers != nullptr, more, x_turned, y_turned, x, y};
    if (registers) memcpy(made.left, registers, sizeof(made.left));
    products[current].back().push_back(made);
}
void commit_products() {
    products[current].emplace_back();
    if (late) return;
    const int group = current / 128;
    meet(GROUPS + group, [group] { finish(group, 0); });
}
void wait_products(int left) {
    const int group = current / 128;
    meet(GROUPS + group, [group, left] { finish(group, left); });
}

static float from_eight(unsigned bits, int digits, int bias) {
    const int exponent = bits >> digits & ((1 << (7 - digits)) - 1), rest = bits & ((1 << digits) - 1);
    const float size = exponent ? ldexpf(1.0f + ldexpf(rest, -digits), exponent - bias) : ldexpf(rest, 1 - bias - digits);
    return bits & 128 ? -size : size;
}
float from_e4m3(unsigned bits) { return (bits & 127) == 127 ? NAN : from_eight(bits, 3, 7); }
float from_e5m2(unsigned bits) {
    if ((bits & 127) > 124) return NAN;
    return (bits & 127) == 124 ? (bits & 128 ? -INFINITY : INFINITY) : from_eight(bits, 2, 15);
}
extern "C" int run_grid(const Grid* grid, void (*kernel)(void**), void** arguments) {
    threads = grid->threads, reversed_order = grid->reversed, late = grid->late;
    body = kernel, given = arguments, failed = false;
    gridDim = {grid->blocks, 1, 1}, blockDim = {threads, 1, 1};
    shared = (unsigned char*)aligned_alloc(1024, (std::max(grid->shared, 1) + 1023) / 1024 * 1024);
    for (int n = 0; n < grid->blocks && !failed; ++n) {
        memset(shared, 0xff, grid->shared);
        blockIdx = {n, 0, 0};
        run_block();
    }
    free(shared);
    return failed;
}
extern "C" const char* problem() { return trouble; }
