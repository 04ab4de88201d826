;; Loops over rows of numbers with the processor's vectors, for feature-loops.ts: over floats (f32), then over doubles
;; (f64). Addresses and strides are bytes.
;;
;; Sums of floats are exact. The numbers of a block of 2^b rows are multiples of the last bit of the smallest one, so float64 adds
;; them without rounding if their exponents differ by 29 - b at most. Others are split at one bit for all of a column,
;; which the largest number decides: the upper parts have at most the 53 bits that a float64 adds without rounding; so
;; have the lower parts if the exponents differ by 83 - 2 b at most. The sums of all blocks are added up in three numbers for
;; each column, each of which takes what the one before rounds off (D. E. Knuth, "The Art of Computer Programming",
;; volume 2, 4.2.2); the sum is exact unless the third one rounds, too.
;;
;; What is known of four columns side by side is stored in a record of 144 bytes, four numbers each:
;;   0  the least number of the block that is not NaN (f32)
;;  16  the greatest one (f32)
;;  32  its smallest magnitude but 0, less 1 in its last bit: that of 0 is the largest of all (i32)
;;  48  minus the rows of all blocks that are not NaN (i32)
;;  64  the sums of the block (f64), NaN as 0
;;  96  the least number of all blocks before (f32)
;; 112  the greatest one (f32)
;; 128  -1 if the sums of all blocks before are exact, else 0 (i32)
(module
  (import "memory" "memory" (memory 4096))

  ;; Begins with the first `columns` columns, at least four; their records are at `records`.
  (func (export "beginFloats") (param $columns i32) (param $records i32)
    (local $end i32)
    (local.set $end
      (i32.add (local.get $records)
        (i32.mul (i32.shr_u (i32.add (local.get $columns) (i32.const 3)) (i32.const 2)) (i32.const 144))))
    (loop $next
      (call $beginBlock (local.get $records))
      (v128.store offset=48 (local.get $records) (v128.const i32x4 0 0 0 0))
      (v128.store offset=96 (local.get $records) (v128.const f32x4 inf inf inf inf))
      (v128.store offset=112 (local.get $records) (v128.const f32x4 -inf -inf -inf -inf))
      (v128.store offset=128 (local.get $records) (v128.const i32x4 -1 -1 -1 -1))
      (local.set $records (i32.add (local.get $records) (i32.const 144)))
      (br_if $next (i32.lt_u (local.get $records) (local.get $end)))))

  (func $beginBlock (param $record i32)
    (v128.store (local.get $record) (v128.const f32x4 inf inf inf inf))
    (v128.store offset=16 (local.get $record) (v128.const f32x4 -inf -inf -inf -inf))
    (v128.store offset=32 (local.get $record) (v128.const i32x4 -1 -1 -1 -1))
    (v128.store offset=64 (local.get $record) (v128.const f64x2 0 0))
    (v128.store offset=80 (local.get $record) (v128.const f64x2 0 0)))

  ;; Adds `rows` rows, whose starts are `stride` apart, in blocks of 2^b rows. Adds their sums to those at `sums`: three
  ;; numbers (f64) for each column whose sum is the column's, the first ones of all columns, then the second ones, the third.
  (func (export "addFloats")
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $b i32) (param $records i32)
    (param $sums i32)
    (local $many i32) (local $column i32) (local $offset i32) (local $record i32) (local $areFinite i32)
    (local.set $areFinite (i32.const 1)) ;; as most are; the first block with others is read once more
    (block $through
      (loop $nextBlock
        (br_if $through (i32.eqz (local.get $rows)))
        (local.set $many (i32.shl (i32.const 1) (local.get $b)))
        (if (i32.lt_u (local.get $rows) (local.get $many)) (then (local.set $many (local.get $rows))))
        (if (i32.and (local.get $many) (i32.const 1)) (then (local.set $areFinite (i32.const 0))))
        (if (local.get $areFinite)
          (then
            (call $readBlock
              (local.get $at) (local.get $stride) (local.get $columns) (local.get $many) (local.get $records)
              (i32.const 1))
            (local.set $areFinite (call $endFinite (local.get $columns) (local.get $many) (local.get $records)))))
        (if (i32.eqz (local.get $areFinite))
          (then
            (call $readBlock
              (local.get $at) (local.get $stride) (local.get $columns) (local.get $many) (local.get $records)
              (i32.const 0))))
        (local.set $column (i32.const 0))
        (local.set $record (local.get $records))
        (loop $nextFour
          (local.set $offset (call $offsetOf (local.get $column) (local.get $columns)))
          (call $endBlock
            (i32.add (local.get $at) (local.get $offset)) (local.get $stride) (local.get $many) (local.get $b)
            (local.get $record)
            (i32.add (local.get $sums) (i32.shl (local.get $offset) (i32.const 1)))
            (i32.shl (local.get $columns) (i32.const 3))
            ;; columns that the four before have, too, are in the sums already
            (i32.sub (local.get $column) (i32.shr_u (local.get $offset) (i32.const 2))))
          (local.set $column (i32.add (local.get $column) (i32.const 4)))
          (local.set $record (i32.add (local.get $record) (i32.const 144)))
          (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
        (local.set $rows (i32.sub (local.get $rows) (local.get $many)))
        (local.set $at (i32.add (local.get $at) (i32.mul (local.get $many) (local.get $stride))))
        (br $nextBlock))))

  ;; Bytes from the start of a row to four columns. The last four may be among those before, too.
  (func $offsetOf (param $column i32) (param $columns i32) (result i32)
    (i32.shl
      (select (local.get $column) (i32.sub (local.get $columns) (i32.const 4))
        (i32.le_u (i32.add (local.get $column) (i32.const 4)) (local.get $columns)))
      (i32.const 2)))

  ;; Reads a block, 128 rows of four columns at a time: what is read of them stays in the processor's first cache.
  ;; `areFinite`: all numbers are taken for finite, and rows are even.
  (func $readBlock
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $records i32) (param $areFinite i32)
    (local $some i32) (local $column i32) (local $record i32) (local $from i32)
    (loop $nextRows
      (local.set $some
        (select (local.get $rows) (i32.const 128) (i32.lt_u (local.get $rows) (i32.const 128))))
      (local.set $column (i32.const 0))
      (local.set $record (local.get $records))
      (loop $nextFour
        (local.set $from (i32.add (local.get $at) (call $offsetOf (local.get $column) (local.get $columns))))
        (if (local.get $areFinite)
          (then (call $readFinite (local.get $from) (local.get $stride) (local.get $some) (local.get $record)))
          (else (call $readFour (local.get $from) (local.get $stride) (local.get $some) (local.get $record))))
        (local.set $column (i32.add (local.get $column) (i32.const 4)))
        (local.set $record (i32.add (local.get $record) (i32.const 144)))
        (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
      (local.set $at (i32.add (local.get $at) (i32.mul (local.get $some) (local.get $stride))))
      (local.set $rows (i32.sub (local.get $rows) (local.get $some)))
      (br_if $nextRows (local.get $rows))))

  ;; Ends the reading of a block whose numbers were taken for finite, and returns 1. If some are not, a sum is NaN or
  ;; infinite: then it begins the block again, and returns 0.
  (func $endFinite (param $columns i32) (param $rows i32) (param $records i32) (result i32)
    (local $end i32) (local $record i32) (local $differences v128)
    (local.set $end
      (i32.add (local.get $records)
        (i32.mul (i32.shr_u (i32.add (local.get $columns) (i32.const 3)) (i32.const 2)) (i32.const 144))))
    (local.set $record (local.get $records))
    (loop $next
      ;; 0 for a finite number, else NaN
      (local.set $differences
        (f64x2.add (local.get $differences)
          (f64x2.add
            (f64x2.sub (v128.load offset=64 (local.get $record)) (v128.load offset=64 (local.get $record)))
            (f64x2.sub (v128.load offset=80 (local.get $record)) (v128.load offset=80 (local.get $record))))))
      (local.set $record (i32.add (local.get $record) (i32.const 144)))
      (br_if $next (i32.lt_u (local.get $record) (local.get $end))))
    (if (i64x2.all_true (f64x2.eq (local.get $differences) (local.get $differences)))
      (then
        (loop $nextCount
          (v128.store offset=48 (local.get $records)
            (i32x4.sub (v128.load offset=48 (local.get $records)) (i32x4.splat (local.get $rows))))
          (local.set $records (i32.add (local.get $records) (i32.const 144)))
          (br_if $nextCount (i32.lt_u (local.get $records) (local.get $end))))
        (return (i32.const 1))))
    (loop $nextBegin
      (call $beginBlock (local.get $records))
      (local.set $records (i32.add (local.get $records) (i32.const 144)))
      (br_if $nextBegin (i32.lt_u (local.get $records) (local.get $end))))
    (i32.const 0))

  ;; Reads pairs of rows of finite numbers.
  (func $readFinite (param $at i32) (param $stride i32) (param $rows i32) (param $record i32)
    (local $end i32) (local $x v128) (local $y v128)
    (local $least v128) (local $greatest v128) (local $smallest v128)
    (local $sumAb v128) (local $sumCd v128) (local $otherAb v128) (local $otherCd v128)
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    (local.set $smallest (v128.load offset=32 (local.get $record)))
    (local.set $sumAb (v128.load offset=64 (local.get $record)))
    (local.set $sumCd (v128.load offset=80 (local.get $record)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (local.set $y (v128.load (local.get $at)))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (local.set $least (f32x4.pmin (local.get $least) (f32x4.pmin (local.get $x) (local.get $y))))
      (local.set $greatest (f32x4.pmax (local.get $greatest) (f32x4.pmax (local.get $x) (local.get $y))))
      (local.set $smallest
        (i32x4.min_u (local.get $smallest)
          (i32x4.min_u 
            (i32x4.add
              (v128.and (local.get $x) (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
              (v128.const i32x4 -1 -1 -1 -1)) 
            (i32x4.add
              (v128.and (local.get $y) (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
              (v128.const i32x4 -1 -1 -1 -1)))))
      (local.set $sumAb (f64x2.add (local.get $sumAb) (f64x2.promote_low_f32x4 (local.get $x))))
      (local.set $otherAb (f64x2.add (local.get $otherAb) (f64x2.promote_low_f32x4 (local.get $y))))
      (local.set $sumCd
        (f64x2.add (local.get $sumCd)
          (f64x2.promote_low_f32x4
            (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x)))))
      (local.set $otherCd
        (f64x2.add (local.get $otherCd)
          (f64x2.promote_low_f32x4
            (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $y) (local.get $y)))))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $record) (local.get $least))
    (v128.store offset=16 (local.get $record) (local.get $greatest))
    (v128.store offset=32 (local.get $record) (local.get $smallest))
    (v128.store offset=64 (local.get $record) (f64x2.add (local.get $sumAb) (local.get $otherAb)))
    (v128.store offset=80 (local.get $record) (f64x2.add (local.get $sumCd) (local.get $otherCd))))

  ;; NaN counts as 0 in sums, and is neither the least nor the greatest.
  (func $readFour (param $at i32) (param $stride i32) (param $rows i32) (param $record i32)
    (local $end i32) (local $x v128) (local $isNumber v128)
    (local $least v128) (local $greatest v128) (local $smallest v128) (local $numbers v128)
    (local $sumAb v128) (local $sumCd v128)
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    (local.set $smallest (v128.load offset=32 (local.get $record)))
    (local.set $numbers (v128.load offset=48 (local.get $record)))
    (local.set $sumAb (v128.load offset=64 (local.get $record)))
    (local.set $sumCd (v128.load offset=80 (local.get $record)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $isNumber (f32x4.eq (local.get $x) (local.get $x)))
      (local.set $numbers (i32x4.add (local.get $numbers) (local.get $isNumber)))
      (local.set $least (f32x4.pmin (local.get $least) (local.get $x)))
      (local.set $greatest (f32x4.pmax (local.get $greatest) (local.get $x)))
      (local.set $smallest
        (i32x4.min_u (local.get $smallest)
          (i32x4.add
            (v128.and (local.get $x) (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
            (v128.const i32x4 -1 -1 -1 -1))))
      (local.set $x (v128.and (local.get $x) (local.get $isNumber)))
      (local.set $sumAb (f64x2.add (local.get $sumAb) (f64x2.promote_low_f32x4 (local.get $x))))
      (local.set $sumCd
        (f64x2.add (local.get $sumCd)
          (f64x2.promote_low_f32x4
            (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x)))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $record) (local.get $least))
    (v128.store offset=16 (local.get $record) (local.get $greatest))
    (v128.store offset=32 (local.get $record) (local.get $smallest))
    (v128.store offset=48 (local.get $record) (local.get $numbers))
    (v128.store offset=64 (local.get $record) (local.get $sumAb))
    (v128.store offset=80 (local.get $record) (local.get $sumCd)))

  ;; Adds the sums of a block of four columns to those at `sums`, of which each next ones are `plane` bytes further on; begins
  ;; the next block. `done`: so many of the four columns are left out of the sums.
  (func $endBlock
    (param $at i32) (param $stride i32) (param $rows i32) (param $b i32) (param $record i32) (param $sums i32)
    (param $plane i32) (param $done i32)
    (local $unsigned v128) (local $least v128) (local $greatest v128) (local $exponent v128) (local $range v128)
    (local.set $unsigned (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    ;; The exponent of the largest magnitude, and what that of the smallest one is less. An infinite one's is 255.
    (local.set $exponent
      (i32x4.shr_u
        (i32x4.max_u
          (v128.and (local.get $least) (local.get $unsigned))
          (v128.and (local.get $greatest) (local.get $unsigned)))
        (i32.const 23)))
    (local.set $range
      (i32x4.sub (local.get $exponent)
        (i32x4.shr_u
          (i32x4.add (v128.load offset=32 (local.get $record)) (v128.const i32x4 1 1 1 1))
          (i32.const 23))))
    (if
      (i32x4.all_true
        (i32x4.le_s (local.get $range) (i32x4.splat (i32.sub (i32.const 29) (local.get $b)))))
      (then
        (call $addSums
          (local.get $record) (local.get $sums) (local.get $plane) (local.get $done)
          (v128.load offset=64 (local.get $record)) (v128.load offset=80 (local.get $record))))
      (else
        (call $splitFour
          (local.get $at) (local.get $stride) (local.get $rows) (local.get $b) (local.get $exponent)
          (local.get $record) (local.get $sums) (local.get $plane) (local.get $done))))
    (v128.store offset=96 (local.get $record)
      (f32x4.pmin (v128.load offset=96 (local.get $record)) (local.get $least)))
    (v128.store offset=112 (local.get $record)
      (f32x4.pmax (v128.load offset=112 (local.get $record)) (local.get $greatest)))
    (v128.store offset=128 (local.get $record)
      (v128.and (v128.load offset=128 (local.get $record))
        (v128.or
          (f32x4.gt (local.get $least) (local.get $greatest)) ;; all are NaN
          (v128.and
            (i32x4.lt_s (local.get $exponent) (v128.const i32x4 255 255 255 255))
            (i32x4.le_s (local.get $range)
              (i32x4.splat (i32.sub (i32.const 83) (i32.shl (local.get $b) (i32.const 1)))))))))
    (call $beginBlock (local.get $record)))

  ;; Adds two numbers for each of two pairs of columns to the sums, but for the first `done` columns; notes in the record
  ;; which sums are no longer exact.
  (func $addSums
    (param $record i32) (param $sums i32) (param $plane i32) (param $done i32) (param $ab v128) (param $cd v128)
    (local.set $ab
      (call $addThree (local.get $sums) (local.get $plane)
        (v128.and (local.get $ab)
          (i64x2.ge_s (v128.const i64x2 0 1) (i64x2.splat (i64.extend_i32_u (local.get $done)))))))
    (local.set $cd
      (call $addThree (i32.add (local.get $sums) (i32.const 16)) (local.get $plane)
        (v128.and (local.get $cd)
          (i64x2.ge_s (v128.const i64x2 2 3) (i64x2.splat (i64.extend_i32_u (local.get $done)))))))
    (v128.store offset=128 (local.get $record)
      (v128.and (v128.load offset=128 (local.get $record))
        (i8x16.shuffle 0 1 2 3 8 9 10 11 16 17 18 19 24 25 26 27 (local.get $ab) (local.get $cd)))))

  ;; Adds two numbers to two sums of three numbers each. Returns -1 for each sum that is exact, else 0.
  (func $addThree (param $sums i32) (param $plane i32) (param $x v128) (result v128)
    (local $end i32) (local $sum v128) (local $next v128) (local $taken v128)
    (local.set $end (i32.add (local.get $sums) (i32.mul (local.get $plane) (i32.const 3))))
    (loop $more
      (local.set $sum (v128.load (local.get $sums)))
      (local.set $next (f64x2.add (local.get $sum) (local.get $x)))
      (v128.store (local.get $sums) (local.get $next))
      (local.set $taken (f64x2.sub (local.get $next) (local.get $sum)))
      (local.set $x
        (f64x2.add
          (f64x2.sub (local.get $sum) (f64x2.sub (local.get $next) (local.get $taken)))
          (f64x2.sub (local.get $x) (local.get $taken))))
      (local.set $sums (i32.add (local.get $sums) (local.get $plane)))
      (br_if $more (i32.lt_u (local.get $sums) (local.get $end))))
    (f64x2.eq (local.get $x) (v128.const f64x2 0 0)))

  ;; Adds to the sums those of the upper and of the lower parts of four columns, of `rows` rows, at most 2^b. `exponent`:
  ;; those of the largest magnitudes.
  (func $splitFour
    (param $at i32) (param $stride i32) (param $rows i32) (param $b i32) (param $exponent v128) (param $record i32)
    (param $sums i32) (param $plane i32) (param $done i32)
    (local $end i32) (local $x v128) (local $half v128) (local $upper v128) (local $splitAb v128) (local $splitCd v128)
    (local $upperAb v128) (local $upperCd v128) (local $lowerAb v128) (local $lowerCd v128)
    ;; What splits numbers is 1.5 · 2^(exponent - 127 + b): added and taken off again, it rounds to a multiple of the
    ;; lowest bit of the upper part. Its bits are made here.
    (local.set $splitAb
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_low_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $splitCd
      (i64x2.add
        (i64x2.shl
          (i64x2.add
            (i64x2.extend_high_i32x4_u (local.get $exponent))
            (i64x2.splat (i64.extend_i32_u (i32.add (i32.const 896) (local.get $b)))))
          (i32.const 52))
        (v128.const i64x2 0x8000000000000 0x8000000000000)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $x (v128.and (local.get $x) (f32x4.eq (local.get $x) (local.get $x))))
      (local.set $half (f64x2.promote_low_f32x4 (local.get $x)))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitAb)) (local.get $splitAb)))
      (local.set $upperAb (f64x2.add (local.get $upperAb) (local.get $upper)))
      (local.set $lowerAb (f64x2.add (local.get $lowerAb) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $half
        (f64x2.promote_low_f32x4
          (i8x16.shuffle 8 9 10 11 12 13 14 15 8 9 10 11 12 13 14 15 (local.get $x) (local.get $x))))
      (local.set $upper
        (f64x2.sub (f64x2.add (local.get $half) (local.get $splitCd)) (local.get $splitCd)))
      (local.set $upperCd (f64x2.add (local.get $upperCd) (local.get $upper)))
      (local.set $lowerCd (f64x2.add (local.get $lowerCd) (f64x2.sub (local.get $half) (local.get $upper))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (call $addSums
      (local.get $record) (local.get $sums) (local.get $plane) (local.get $done)
      (local.get $upperAb) (local.get $upperCd))
    (call $addSums
      (local.get $record) (local.get $sums) (local.get $plane) (local.get $done)
      (local.get $lowerAb) (local.get $lowerCd)))

  ;; Stores what is known of a column of `rows` rows at `to`, seven numbers (f64) in the order of `countOf`. Returns 0 if
  ;; its sums are exact; if not, the count of finite numbers is -1.
  (func $storeCounts
    (param $to i32) (param $rows i32) (param $numbers i32) (param $isExact i32) (param $least f64) (param $greatest f64)
    (result i32)
    (f64.store (local.get $to) (f64.const 0))
    (f64.store offset=8 (local.get $to) (f64.convert_i32_u (i32.sub (local.get $rows) (local.get $numbers))))
    (f64.store offset=16 (local.get $to) (f64.const 0))
    (f64.store offset=24 (local.get $to) (f64.const 0))
    (f64.store offset=32 (local.get $to)
      (select (f64.convert_i32_u (local.get $numbers)) (f64.const -1) (local.get $isExact)))
    ;; -0 becomes 0.
    (f64.store offset=40 (local.get $to) (f64.add (local.get $least) (f64.const 0)))
    (f64.store offset=48 (local.get $to) (f64.add (local.get $greatest) (f64.const 0)))
    (i32.eqz (local.get $isExact)))

  ;; Stores what is known of all columns at `to`, one after the other. Returns 0 if all sums are exact.
  (func (export "endFloats") (param $columns i32) (param $rows i32) (param $records i32) (param $to i32) (result i32)
    (local $column i32) (local $offset i32) (local $element i32) (local $record i32) (local $bad i32)
    (local.set $record (local.get $records))
    (loop $nextFour
      (local.set $offset (call $offsetOf (local.get $column) (local.get $columns)))
      ;; The last four columns may include columns of the four before, which have already told whether their sums are exact.
      (local.set $element (i32.sub (i32.shl (local.get $column) (i32.const 2)) (local.get $offset)))
      (loop $nextElement
        (local.set $records (i32.add (local.get $record) (local.get $element)))
        (local.set $bad
          (i32.or (local.get $bad)
            (call $storeCounts
              (i32.add (local.get $to) (i32.mul (i32.add (local.get $offset) (local.get $element)) (i32.const 14)))
              (local.get $rows)
              (i32.sub (i32.const 0) (i32.load offset=48 (local.get $records)))
              (i32.load offset=128 (local.get $records))
              (f64.promote_f32 (f32.load offset=96 (local.get $records)))
              (f64.promote_f32 (f32.load offset=112 (local.get $records))))))
        (local.set $element (i32.add (local.get $element) (i32.const 4)))
        (br_if $nextElement (i32.lt_u (local.get $element) (i32.const 16))))
      (local.set $column (i32.add (local.get $column) (i32.const 4)))
      (local.set $record (i32.add (local.get $record) (i32.const 144)))
      (br_if $nextFour (i32.lt_u (local.get $column) (local.get $columns))))
    (local.get $bad))

  ;; Doubles, two columns side by side. They are split twice, at bits that the largest one decides: the upper and the
  ;; middle parts of 2^b numbers have at most the 53 bits that a float64 adds without rounding; so have the lower parts if
  ;; the exponents differ by 108 - 3 b at most. A record of two columns:
  ;;   0  the least number of the block that is not NaN
  ;;  16  the greatest one
  ;;  32  its smallest magnitude but 0; infinite if there is none
  ;;  48  minus the rows of all blocks that are not NaN (i64)
  ;;  64  what splits the numbers of the block
  ;;  80  what splits the rest
  ;;  96  the least number of all blocks before
  ;; 112  the greatest one
  ;; 128  -1 if the sums of all blocks before are exact, else 0 (i64)

  ;; Begins with the first `columns` columns, at least two; their records are at `records`.
  (func (export "beginDoubles") (param $columns i32) (param $records i32)
    (local $end i32)
    (local.set $end
      (i32.add (local.get $records)
        (i32.mul (i32.shr_u (i32.add (local.get $columns) (i32.const 1)) (i32.const 1)) (i32.const 144))))
    (loop $next
      (call $beginBlockOfDoubles (local.get $records))
      (v128.store offset=48 (local.get $records) (v128.const i64x2 0 0))
      (v128.store offset=96 (local.get $records) (v128.const f64x2 inf inf))
      (v128.store offset=112 (local.get $records) (v128.const f64x2 -inf -inf))
      (v128.store offset=128 (local.get $records) (v128.const i64x2 -1 -1))
      (local.set $records (i32.add (local.get $records) (i32.const 144)))
      (br_if $next (i32.lt_u (local.get $records) (local.get $end)))))

  (func $beginBlockOfDoubles (param $record i32)
    (v128.store (local.get $record) (v128.const f64x2 inf inf))
    (v128.store offset=16 (local.get $record) (v128.const f64x2 -inf -inf))
    (v128.store offset=32 (local.get $record) (v128.const f64x2 inf inf)))

  ;; As `addFloats`, with three sums for each column: the first ones of all columns, then the second ones, then the third ones.
  (func (export "addDoubles")
    (param $at i32) (param $stride i32) (param $columns i32) (param $rows i32) (param $b i32) (param $records i32)
    (param $sums i32)
    (local $many i32) (local $column i32) (local $offset i32) (local $record i32) (local $plane i32)
    (local.set $plane (i32.shl (local.get $columns) (i32.const 3)))
    (block $through
      (loop $nextBlock
        (br_if $through (i32.eqz (local.get $rows)))
        (local.set $many (i32.shl (i32.const 1) (local.get $b)))
        (if (i32.lt_u (local.get $rows) (local.get $many)) (then (local.set $many (local.get $rows))))
        (local.set $column (i32.const 0))
        (local.set $record (local.get $records))
        (loop $nextTwo
          (local.set $offset (call $offsetOfTwo (local.get $column) (local.get $columns)))
          (call $readTwo
            (i32.add (local.get $at) (local.get $offset)) (local.get $stride) (local.get $many) (local.get $record))
          (call $endColumn (local.get $record) (local.get $b))
          (call $endColumn (i32.add (local.get $record) (i32.const 8)) (local.get $b))
          (call $splitTwo
            (i32.add (local.get $at) (local.get $offset)) (local.get $stride) (local.get $many) (local.get $record)
            (i32.add (local.get $sums) (local.get $offset)) (local.get $plane))
          (call $beginBlockOfDoubles (local.get $record))
          (local.set $column (i32.add (local.get $column) (i32.const 2)))
          (local.set $record (i32.add (local.get $record) (i32.const 144)))
          (br_if $nextTwo (i32.lt_u (local.get $column) (local.get $columns))))
        (local.set $rows (i32.sub (local.get $rows) (local.get $many)))
        (local.set $at (i32.add (local.get $at) (i32.mul (local.get $many) (local.get $stride))))
        (local.set $sums (i32.add (local.get $sums) (i32.mul (local.get $plane) (i32.const 3))))
        (br $nextBlock))))

  ;; Bytes from the start of a row to two columns. The last two may be among those before, too.
  (func $offsetOfTwo (param $column i32) (param $columns i32) (result i32)
    (i32.shl
      (select (local.get $column) (i32.sub (local.get $columns) (i32.const 2))
        (i32.le_u (i32.add (local.get $column) (i32.const 2)) (local.get $columns)))
      (i32.const 3)))

  (func $readTwo (param $at i32) (param $stride i32) (param $rows i32) (param $record i32)
    (local $end i32) (local $x v128) (local $least v128) (local $greatest v128) (local $smallest v128)
    (local $numbers v128)
    (local.set $least (v128.load (local.get $record)))
    (local.set $greatest (v128.load offset=16 (local.get $record)))
    (local.set $smallest (v128.load offset=32 (local.get $record)))
    (local.set $numbers (v128.load offset=48 (local.get $record)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $numbers (i64x2.add (local.get $numbers) (f64x2.eq (local.get $x) (local.get $x))))
      (local.set $least (f64x2.pmin (local.get $least) (local.get $x)))
      (local.set $greatest (f64x2.pmax (local.get $greatest) (local.get $x)))
      ;; 0 becomes NaN, which is never smaller.
      (local.set $smallest
        (f64x2.pmin (local.get $smallest)
          (v128.or (f64x2.abs (local.get $x)) (f64x2.eq (local.get $x) (v128.const f64x2 0 0)))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $record) (local.get $least))
    (v128.store offset=16 (local.get $record) (local.get $greatest))
    (v128.store offset=32 (local.get $record) (local.get $smallest))
    (v128.store offset=48 (local.get $record) (local.get $numbers)))

  ;; Decides where the numbers of a column are split, and whether their sums are exact; adds its extremes to those of the
  ;; blocks before.
  (func $endColumn (param $record i32) (param $b i32)
    (local $least f64) (local $greatest f64) (local $largest f64) (local $exponent i32) (local $smallest i32)
    (local $within i32)
    (local.set $least (f64.load (local.get $record)))
    (local.set $greatest (f64.load offset=16 (local.get $record)))
    (local.set $largest (f64.max (f64.abs (local.get $least)) (f64.abs (local.get $greatest))))
    (local.set $exponent (call $exponentOf (local.get $largest)))
    (local.set $smallest (call $exponentOf (f64.load offset=32 (local.get $record))))
    ;; Numbers that split are finite and no subnormal ones.
    (local.set $within
      (select (local.get $exponent) (i32.const 64) (i32.gt_s (local.get $exponent) (i32.const 64))))
    (local.set $within
      (select (local.get $within) (i32.const 2030) (i32.lt_s (local.get $within) (i32.const 2030))))
    (f64.store offset=64 (local.get $record) (call $splitAt (i32.add (local.get $within) (local.get $b))))
    (f64.store offset=80 (local.get $record)
      (call $splitAt
        (i32.add (local.get $within) (i32.sub (i32.shl (local.get $b) (i32.const 1)) (i32.const 54)))))
    (if
      (i32.eqz
        (i32.or
          (i32.or
            (f64.gt (local.get $least) (local.get $greatest)) ;; all are NaN
            (f64.eq (local.get $largest) (f64.const 0)))
          (i32.and
            (i32.and
              (i32.le_s (local.get $exponent) (i32.const 2030))
              (i32.ge_s (local.get $smallest) (i32.const 53))) ;; subnormal parts would count as 0
            (i32.le_s
              (i32.sub (local.get $within) (local.get $smallest))
              (i32.sub (i32.const 108) (i32.mul (local.get $b) (i32.const 3)))))))
      (then (i64.store offset=128 (local.get $record) (i64.const 0))))
    (f64.store offset=96 (local.get $record)
      (f64.min (f64.load offset=96 (local.get $record)) (local.get $least)))
    (f64.store offset=112 (local.get $record)
      (f64.max (f64.load offset=112 (local.get $record)) (local.get $greatest))))

  ;; The exponent in the bits of a number that is not negative.
  (func $exponentOf (param $x f64) (result i32)
    (i32.wrap_i64 (i64.shr_u (i64.reinterpret_f64 (local.get $x)) (i64.const 52))))

  ;; 1.5 times the power of two with this exponent in its bits.
  (func $splitAt (param $exponent i32) (result f64)
    (f64.reinterpret_i64
      (i64.or
        (i64.shl (i64.extend_i32_u (local.get $exponent)) (i64.const 52))
        (i64.const 0x8000000000000))))

  ;; Stores at `sums` and each `plane` bytes further on the sums of the upper, the middle and the lower parts.
  (func $splitTwo
    (param $at i32) (param $stride i32) (param $rows i32) (param $record i32) (param $sums i32) (param $plane i32)
    (local $end i32) (local $x v128) (local $part v128) (local $split v128) (local $splitRest v128)
    (local $upper v128) (local $middle v128) (local $lower v128)
    (local.set $split (v128.load offset=64 (local.get $record)))
    (local.set $splitRest (v128.load offset=80 (local.get $record)))
    (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (local.get $stride))))
    (loop $next
      (local.set $x (v128.load (local.get $at)))
      (local.set $x (v128.and (local.get $x) (f64x2.eq (local.get $x) (local.get $x))))
      (local.set $part (f64x2.sub (f64x2.add (local.get $x) (local.get $split)) (local.get $split)))
      (local.set $upper (f64x2.add (local.get $upper) (local.get $part)))
      (local.set $x (f64x2.sub (local.get $x) (local.get $part)))
      (local.set $part (f64x2.sub (f64x2.add (local.get $x) (local.get $splitRest)) (local.get $splitRest)))
      (local.set $middle (f64x2.add (local.get $middle) (local.get $part)))
      (local.set $lower (f64x2.add (local.get $lower) (f64x2.sub (local.get $x) (local.get $part))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $next (i32.ne (local.get $at) (local.get $end))))
    (v128.store (local.get $sums) (local.get $upper))
    (local.set $sums (i32.add (local.get $sums) (local.get $plane)))
    (v128.store (local.get $sums) (local.get $middle))
    (local.set $sums (i32.add (local.get $sums) (local.get $plane)))
    (v128.store (local.get $sums) (local.get $lower)))

  ;; As `endFloats`.
  (func (export "endDoubles") (param $columns i32) (param $rows i32) (param $records i32) (param $to i32) (result i32)
    (local $column i32) (local $offset i32) (local $element i32) (local $record i32) (local $bad i32)
    (local.set $record (local.get $records))
    (loop $nextTwo
      (local.set $offset (call $offsetOfTwo (local.get $column) (local.get $columns)))
      (local.set $element (i32.const 0))
      (loop $nextElement
        (local.set $records (i32.add (local.get $record) (local.get $element)))
        (local.set $bad
          (i32.or (local.get $bad)
            (call $storeCounts
              (i32.add (local.get $to) (i32.mul (i32.add (local.get $offset) (local.get $element)) (i32.const 7)))
              (local.get $rows)
              (i32.sub (i32.const 0) (i32.load offset=48 (local.get $records)))
              (i32.load offset=128 (local.get $records))
              (f64.load offset=96 (local.get $records))
              (f64.load offset=112 (local.get $records)))))
        (local.set $element (i32.add (local.get $element) (i32.const 8)))
        (br_if $nextElement (i32.lt_u (local.get $element) (i32.const 16))))
      (local.set $column (i32.add (local.get $column) (i32.const 2)))
      (local.set $record (i32.add (local.get $record) (i32.const 144)))
      (br_if $nextTwo (i32.lt_u (local.get $column) (local.get $columns))))
    (local.get $bad)))
